# SPDX-License-Identifier: Apache-2.0
"""Generated stubs of protos/gpudeck/adapter/v1/adapter.proto (`make golden`)."""
