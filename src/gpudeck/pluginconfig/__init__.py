# SPDX-License-Identifier: Apache-2.0
"""The config file `version: v1` that the device plugin and GPU feature discovery share.

`model` is what it says, `reading` checks every word of it, `selecting` chooses the named config of
a node: these are pure. `following` tells a process which one holds as the Node's label and the
ConfigMap change, `filing` does so for one file, `keeping` has the last good one on disk, and
`settings` are those that both processes have. So devices and labels follow the same config.
"""
