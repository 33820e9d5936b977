# SPDX-License-Identifier: Apache-2.0
"""CDI specifications: what the container runtime adds to a container that uses a claim.

`spec` is the file format, `rendering` (pure) makes one spec of a claim, `files` keeps
the specs of this driver in the runtime's folder. Nothing here knows a maker.
"""
