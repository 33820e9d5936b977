# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of the node: where its sockets lie and what it asks over them.

`paths` names the sockets, `services` binds our functions to the kubelet's gRPC
services, `registering` makes a plugin known. The messages in `wire` are generated
from protos/kubelet. Nothing here knows what a card is.
"""
