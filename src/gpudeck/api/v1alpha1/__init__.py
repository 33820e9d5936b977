# SPDX-License-Identifier: Apache-2.0
"""The kinds of `gpu.deckhouse.io/v1alpha1`."""
