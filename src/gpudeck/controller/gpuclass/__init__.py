# SPDX-License-Identifier: Apache-2.0
"""GPUClass: its DeviceClass, and how many cards it selects."""
