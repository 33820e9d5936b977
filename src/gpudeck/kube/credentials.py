# SPDX-License-Identifier: Apache-2.0
"""Who we are to the API server, and how we know that it is the API server.

`Tls` keeps an SSL context that follows its files: a rotated CA or client
certificate is used by the next new connection, and nothing that runs is torn
down. A `Credential` gives the token for one request: fixed, from a file that
the kubelet rotates, or from an exec plugin (`executing`). Files are read in the
loop: they are small and local (a projected volume is a tmpfs).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from pathlib import Path
from typing import Protocol

import msgspec

from gpudeck import errors

TOKEN_SECONDS = 60.0
"""A token file is read again at least this often, as client-go does: not every
file system reports a changed mtime for a swapped symlink."""


class Credential(Protocol):
    """Gives the bearer token of a request."""

    async def token(self) -> str:
        """Return the token, "" for none. UnavailableError if it cannot be had now."""

    def forget(self) -> bool:
        """Drop what is cached after a 401; True if the next token may be another one."""


class FixedToken:
    """A token that stands in the kubeconfig, or none."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    async def token(self) -> str:
        """Return the token."""
        return self._text

    def forget(self) -> bool:
        """Nothing is cached, so another attempt gives the same token."""
        return False


class TokenFile:
    """A token in a file, read again when its mtime changes, every minute, and after a 401."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._stamp = -1
        self._read_at = 0.0

    async def token(self) -> str:
        """Return what the file says now."""
        now = asyncio.get_running_loop().time()
        try:
            stamp = self._path.stat().st_mtime_ns
            if not self._text or stamp != self._stamp or now - self._read_at > TOKEN_SECONDS:
                self._text = self._path.read_text().strip()
                self._stamp, self._read_at = stamp, now
        except OSError as error:
            # During a rotation the file may be away for a moment; the last token is still good.
            if not self._text:
                raise errors.UnavailableError(
                    f"token file {self._path}: {error.strerror}",
                    reason="TokenUnreadable",
                ) from error
        return self._text

    def forget(self) -> bool:
        """Read the file again on the next request."""
        self._stamp = -1
        return True


class Pem(msgspec.Struct, frozen=True):
    """PEM text, or the file that holds it."""

    path: Path | None = None
    text: str = ""

    def read(self) -> str:
        """Return the PEM text; "" if there is none."""
        return self.path.read_text() if self.path else self.text

    def stamp(self) -> tuple[int, int]:
        """Return what changes when the file changes."""
        if self.path is None:
            return (0, 0)
        state = self.path.stat()
        return (state.st_mtime_ns, state.st_ino)


class Tls:
    """The SSL context towards one API server; built again when one of its files has changed."""

    def __init__(
        self,
        *,
        authority: Pem | None = None,
        certificate: Pem | None = None,
        key: Pem | None = None,
        insecure: bool = False,
    ) -> None:
        self._authority = authority or Pem()
        self._certificate = certificate or Pem()
        self._key = key or Pem()
        self._insecure = insecure
        self._context: ssl.SSLContext | None = None
        self._stamps: list[tuple[int, int]] = []

    def present(self, certificate: str, key: str) -> None:
        """Use this client certificate (PEM texts) from the next connection on."""
        new = (Pem(text=certificate), Pem(text=key))
        if new != (self._certificate, self._key):
            self._certificate, self._key = new
            self._context = None

    def context(self) -> ssl.SSLContext:
        """Return the context. InvalidError if the files hold no certificates."""
        parts = (self._authority, self._certificate, self._key)
        try:
            stamps = [part.stamp() for part in parts]
            if self._context is None or stamps != self._stamps:
                self._context, self._stamps = self._build(), stamps
        except (OSError, ValueError) as error:
            # A half-written rotation must not end what works; the next request looks again.
            if self._context is None:
                raise errors.InvalidError(
                    f"certificates for the API server cannot be loaded: {error}",
                    reason="CertificatesUnreadable",
                ) from error
        return self._context

    def _build(self) -> ssl.SSLContext:
        authority = self._authority.read()
        context = ssl.create_default_context(cadata=authority or None)
        # Kubernetes' own CAs often lack the key usage extension that strict checking wants.
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate = self._certificate.read()
        if certificate:
            load_chain(context, certificate, self._key.read())
        return context


def load_chain(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a client certificate from texts; ssl takes files only, so for a moment there is one."""
    with tempfile.TemporaryDirectory(prefix="gpudeck-") as folder:
        path = Path(folder) / "client.pem"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(f"{certificate.strip()}\n{key.strip()}\n")
        context.load_cert_chain(path)
