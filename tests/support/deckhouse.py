# SPDX-License-Identifier: Apache-2.0
"""What a cluster of Deckhouse has and another one has not: the kind NodeGroup, without a schema."""

from __future__ import annotations

from typing import Any

from gpudeck.api.resources import NODE_GROUP

NODE_GROUPS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{NODE_GROUP.plural}.{NODE_GROUP.group}"},
    "spec": {
        "group": NODE_GROUP.group,
        "scope": "Cluster",
        "names": {"kind": NODE_GROUP.kind, "plural": NODE_GROUP.plural, "singular": "nodegroup"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
