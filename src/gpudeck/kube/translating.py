# SPDX-License-Identifier: Apache-2.0
"""Failures of the network in gpudeck's words.

Used by `transport` around whatever touches a socket. Texts of aiohttp and of
asyncio are never passed on: they hold printed Python objects and addresses as tuples.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator

import aiohttp

from gpudeck import errors
from gpudeck.kube import pacing


@contextlib.contextmanager
def network(what: str, server: str) -> Iterator[None]:
    """Turn network errors into UnavailableError, and a wrong certificate into ForbiddenError.

    Its reason is pacing.UNREACHABLE if there was no connection to `server` at all.
    """
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise errors.ForbiddenError(
            f"the certificate of the API server at {server} is not trusted: {_why(error)}",
            reason="CertificateNotTrusted",
        ) from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        through = ""
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            through = f" through the proxy {error.host}:{error.port}"
        raise errors.UnavailableError(
            f"the API server at {server} cannot be reached{through}: {_why(error)}",
            reason=pacing.UNREACHABLE,
        ) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise errors.UnavailableError(
            f"{what}: the API server at {server} does not answer: {_why(error)}"
        ) from error


def _why(error: BaseException) -> str:
    """Return the cause as the end of a sentence."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _why(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _why(error.os_error)
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{error.status} {error.message}"
    if isinstance(error, ssl.SSLError):
        return _of_tls(error)
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return _of_system(error)
    return _of_exchange(error)


def _of_exchange(error: BaseException) -> str:
    match error:
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection"
        case aiohttp.ClientPayloadError():
            return "its answer broke off"
        case TimeoutError():
            return "timed out"
    return type(error).__name__


def _of_tls(error: ssl.SSLError) -> str:
    # Only those that OpenSSL raised bear these attributes.
    sentence: str | None = getattr(error, "verify_message", None)
    reason: str = getattr(error, "reason", None) or "no reason given"
    return sentence or f"TLS failed: {reason.lower().replace('_', ' ')}"


def _of_system(error: OSError) -> str:
    if isinstance(error, socket.gaierror):  # Its numbers are not those of errno.
        text = error.strerror or "its name is not known"
    elif error.errno:
        text = os.strerror(error.errno)  # That of asyncio names the call, not the failure.
    else:
        text = "none of its addresses answers"
    return text[:1].lower() + text[1:]
