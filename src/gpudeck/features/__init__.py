# SPDX-License-Identifier: Apache-2.0
"""The process features: what nodes have, as labels; names and formats of node-feature-discovery.

`worker` runs on each node: `sources` read the host, `labelling` gives the built-in labels,
and one NodeFeature a node is written. `master` leads once in the cluster: it merges the
NodeFeatures of a node, uses the rules (`rules`, `templates`) and writes what follows to the
Node, with annotations that say what is its own. `gc` deletes NodeFeatures of vanished nodes.
"""
