# SPDX-License-Identifier: Apache-2.0
"""The config file `version: v1` that the device plugin and GPU feature discovery share.

`model` is what it says, `reading` checks every word of it, `selecting` chooses the
named config of a node. Pure: nothing here reads a file or asks the API server.
"""
