# SPDX-License-Identifier: Apache-2.0
"""Generated messages of protos/kubelet (`make golden`)."""
