# SPDX-License-Identifier: Apache-2.0
"""How the cards of each node are handed out, and the way from one mode to the other."""
