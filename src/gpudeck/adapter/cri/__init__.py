# SPDX-License-Identifier: Apache-2.0
"""Generated messages of protos/cri (`make golden`)."""
