# SPDX-License-Identifier: Apache-2.0
"""mig-manager: a node's cards partitioned as a label of the Node says, and the node kept safe.

    sources     which config a name means (pure)
    stepping    the next step, from Node, cards, pods and time (pure)
    looking     the cards, read and changed by the maker's library
    reporting   the condition and the Events of the Node
    main        the process

In DRA mode partitions follow the claims of pods; there this process stands by.
"""
