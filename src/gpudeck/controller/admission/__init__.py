# SPDX-License-Identifier: Apache-2.0
"""What the controller says to pods, claims and classes before the API server keeps them."""
