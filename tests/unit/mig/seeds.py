# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap `nvidia-mig-config` as guides print it: no-break spaces, one line too deep."""

_PRINTED = """\
apiVersion: v1
kind: ConfigMap
metadata:
~name: nvidia-mig-config
~ namespace: kube-system
data:
~config.yaml: |
~ ~version: v1
~ ~mig-configs:
~ ~ ~disabled:
~ ~ ~- devices: all
~ ~ ~ ~mig-enabled: false
~ ~ ~# A100-40GB
~ ~ ~2x2g.10gb-3x1g.5gb:
~ ~ ~- devices: all
~ ~ ~ ~mig-enabled: true
~ ~ ~ ~mig-devices:
~ ~ ~ ~ ~"1g.5gb": 3
~ ~ ~ ~ ~"2g.10gb": 2
"""
PRINTED = _PRINTED.replace("~", "\u00a0")
