# SPDX-License-Identifier: Apache-2.0
"""What a GPU is: pure values without any I/O."""
