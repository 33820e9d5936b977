# SPDX-License-Identifier: Apache-2.0
"""What the controller says to objects before the API server keeps them."""
