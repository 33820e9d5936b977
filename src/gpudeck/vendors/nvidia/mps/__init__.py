# SPDX-License-Identifier: Apache-2.0
"""MPS: one control daemon for each card that has shares of that strategy.

The daemons live in a process of their own, `gpudeck mps-control`, because all who work
on a card end with its daemon: an update of the adapter must not touch them. The two never
speak; files below /run/gpudeck/mps of the node say what is wanted and what there is.

places      the files: which shares want a daemon, which daemon serves
confining   becomes the daemon: the node's root, the card's /dev/shm, ends with its parent
control     starts the daemon of a card, and gives it commands
daemons     keeps the daemons that are wanted
joining     in the library process: shares come to a card and leave it
clients     in the adapter: what containers are given, and whether the daemon is there
settings    of `gpudeck mps-control`
main        the process
"""
