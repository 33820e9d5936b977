# SPDX-License-Identifier: Apache-2.0
"""Where features of a node come from: each module reads one part of the host into a Known.

They read below the host's root only, through `host`. What is missing or has no value is
left out; `reading` calls them all, and one that fails does not stop the others.
"""
