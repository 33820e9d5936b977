# SPDX-License-Identifier: Apache-2.0
"""Why a pod waits for a card, or which it holds: pure functions over a snapshot of the cluster.

`world` is the snapshot; `cards` makes one list of all cards from whatever tells of
them; `asking` reads what a pod asks for; `matching` compares a card with a class;
`placing` a node with a pod; `judging` gives each card one reason; `answering`
makes the sentences. `cli.get` and `cli.explain` gather and print.
"""
