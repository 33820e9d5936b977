# SPDX-License-Identifier: Apache-2.0
"""GPU management for Kubernetes."""
