# SPDX-License-Identifier: Apache-2.0
"""What is on the wire: objects, labels, conditions and resources, without any I/O."""
