# SPDX-License-Identifier: Apache-2.0
"""The door to the makers' libraries: each maker is one folder behind one contract.

    contract        what a maker implements: read it first
    registry        names of makers → their implementation
    worker          what runs in a library process
    calling         how the serving process starts one and calls into it, with a deadline each
    supervisor      keeps library processes going and the inventory true
    heeding         which troubles count, by the word of an administrator
    records, health what was read and raised about a card → one verdict
    nvidia          NVML
    simulated       cards described by a file, for tests

A maker's library is never loaded into the process that serves: it may hang for ever
or crash (NVIDIA/go-nvml issue 152), and only a process can be ended from outside.
"""
