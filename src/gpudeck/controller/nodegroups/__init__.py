# SPDX-License-Identifier: Apache-2.0
"""Which group a GPU node belongs to, and the DaemonSets, configs and labels of each group."""
