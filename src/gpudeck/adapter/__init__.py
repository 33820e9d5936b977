# SPDX-License-Identifier: Apache-2.0
"""The adapter process of a maker: serves gpudeck.adapter.v1 from a vendor of `gpudeck.vendors`."""
