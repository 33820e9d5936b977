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
def network(what: str, server: str, timeout: aiohttp.ClientTimeout) -> Iterator[None]:
    """Turn network errors into UnavailableError, and a wrong certificate into ForbiddenError.

    Its reason is pacing.UNREACHABLE if there was no connection to `server` at all; its cause is
    a TimeoutError if a limit of `timeout` has passed.
    """
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise errors.ForbiddenError(
            f"the certificate of the API server at {server} is not trusted: {_why(error, timeout)}",
            reason="CertificateNotTrusted",
        ) from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        through = ""
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            through = f" through the proxy {error.host}:{error.port}"
        raise errors.UnavailableError(
            f"the API server at {server} cannot be reached{through}: {_why(error, timeout)}",
            reason=pacing.UNREACHABLE,
        ) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise errors.UnavailableError(
            f"{what}: the API server at {server} does not answer: {_why(error, timeout)}"
        ) from error


def _why(error: BaseException, timeout: aiohttp.ClientTimeout) -> str:
    """Return the cause as the end of a sentence."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _why(error.certificate_error, timeout)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _why(error.os_error, timeout)
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{error.status} {error.message}"
    if isinstance(error, ssl.SSLError):
        return _of_tls(error)
    if isinstance(error, OSError) and (error.errno or not isinstance(error, TimeoutError)):
        return _of_system(error)
    return _of_exchange(error, timeout)


def _of_exchange(error: BaseException, timeout: aiohttp.ClientTimeout) -> str:
    match error:
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection"
        case aiohttp.ClientPayloadError():
            return "its answer broke off"
        case TimeoutError():
            return _of_limit(error, timeout)
    return type(error).__name__


def _of_limit(error: TimeoutError, timeout: aiohttp.ClientTimeout) -> str:
    match error:
        case aiohttp.ConnectionTimeoutError():
            seconds = timeout.sock_connect
        case aiohttp.SocketTimeoutError():
            seconds = timeout.sock_read
        case _:
            seconds = timeout.total
    return "timed out" if seconds is None else f"timed out after {seconds:g} s"


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
