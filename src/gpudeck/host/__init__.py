# SPDX-License-Identifier: Apache-2.0
"""The door to the node: its files, its PCI bus, its kernel's events, and child processes.

No other package of the product opens a file of the host or starts a process. Paths
are those of the node (`/sys/bus/pci/devices`); `root.Root` maps them below the folder
where this process sees the node's root, so the same code reads `/`, a host folder
mounted into a pod, or a tree in a test.

    root       read and write files below the host's root
    files      replace and remove files so that a crash leaves the old or the new content
    locks      exclusive locks between processes and pods of one node
    processes  start, await and end child processes
    pci        which devices are on the PCI bus
    pciids     what their numbers are called
    uevents    tell when the bus changes
    osrelease  name and version of the operating system
    platform   kernel release, boot id, bare metal or virtual machine
"""
