# SPDX-License-Identifier: Apache-2.0
"""The process gfd: what a node's NVIDIA cards are, as labels of the node.

    table        every label there is, and what it means
    options      what decides the labels besides the cards: settings and `pluginconfig`'s config
    labelling    cards and options → labels
    partitions   the part of it that MIG strategies decide
    sharing      how often a resource is handed out
    virtual      what a virtual GPU says of its host's driver
    holding      when labels are written, and when the old ones are better kept
    publishing   writes labels: a NodeFeature, or a file for node-feature-discovery
    keeping      the task that writes them
    serving      what needs the API server's client
    main         the process

The labels are those of NVIDIA's gpu-feature-discovery 0.20 (facts in docs/reference/node-labels);
they stay when a node changes between device plugin and DRA.
"""
