# SPDX-License-Identifier: Apache-2.0
"""GPU management for Kubernetes."""

__version__ = "0.1.0"
