# SPDX-License-Identifier: Apache-2.0
"""The only door to the API server.

From a kubeconfig or a pod's service account to typed objects:
`configuration` → `credentials`, `executing` → `transport` → `client`; on top of
it `watching` → `caching` keeps a part of the cluster in memory, `queueing` runs
reconcilers, `electing` chooses one replica, `recording` writes Events and
`serving` answers /metrics and /healthz. `pacing` and `responses` are pure.

HTTP statuses and network errors leave this package as `gpudeck.errors`.
"""
