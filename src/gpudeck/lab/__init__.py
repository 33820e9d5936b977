# SPDX-License-Identifier: Apache-2.0
"""The lab: a real Kubernetes on this machine, with simulated cards in its nodes.

Hosts are data (`machines/`); from one description come the host tree (`hosttree`) and
the mock driver's state (`simulation`). The product never imports anything from here.
"""
