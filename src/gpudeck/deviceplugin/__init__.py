# SPDX-License-Identifier: Apache-2.0
"""The device plugin: cards as the kubelet's extended resources.

    offering    cards and config -> the devices of each resource (pure)
    occupying   what of them must wait for pods that hold the card otherwise (pure)
    answering   the answer to Allocate (pure)
    preferring  the answer to GetPreferredAllocation (pure), by `topology`
    specs       the CDI files that name every card (pure)
    serving     one gRPC server for each resource, known to the kubelet whatever restarts
    configuring which config holds, from the Node and a ConfigMap
    main        the process

What serves the kubelet never loads the maker's library: a supervised child does.
"""
