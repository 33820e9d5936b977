# SPDX-License-Identifier: Apache-2.0
"""Where the API server is and who we are to it: a kubeconfig, or a pod's service account.

`load` reads kubeconfig files as kubectl does: several paths joined by the
system's separator are merged, the first to name a thing wins, and relative
paths start at the file that holds them. Called by `client.Client.connect` only.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gpudeck import errors
from gpudeck.kube import credentials, executing

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Access(msgspec.Struct):
    """All that is needed to open connections to one API server."""

    server: str
    tls: credentials.Tls
    credential: credentials.Credential
    server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"


class _Kebab(msgspec.Struct, rename="kebab"):
    pass


class _Cluster(_Kebab):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(_Kebab):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    exec: executing.ExecConfig | None = None


class _Context(_Kebab):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Kebab):
    name: str
    cluster: _Cluster


class _NamedUser(_Kebab):
    name: str
    user: _User | None = None


class _NamedContext(_Kebab):
    name: str
    context: _Context


class _File(_Kebab):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


def in_cluster(env: Mapping[str, str] | None = None, folder: Path = SERVICE_ACCOUNT) -> Access:
    """Return the access of the pod's service account; InvalidError outside a pod."""
    source = os.environ if env is None else env
    host, port = (
        source.get("KUBERNETES_SERVICE_HOST"),
        source.get("KUBERNETES_SERVICE_PORT"),
    )
    if not host or not port:
        raise errors.InvalidError(
            "kubeconfig: empty, and KUBERNETES_SERVICE_HOST is not set; "
            "allowed: the path of a kubeconfig file, or nothing inside a pod",
            reason="NoCluster",
            field="kubeconfig",
        )
    address = f"[{host}]" if ":" in host else host
    namespace = folder / "namespace"
    return Access(
        server=f"https://{address}:{port}",
        tls=credentials.Tls(authority=credentials.Pem(path=folder / "ca.crt")),
        credential=credentials.TokenFile(folder / "token"),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
    )


def load(paths: str, context: str = "") -> Access:
    """Return the access that a context of kubeconfig files gives, by default the current one.

    Raises InvalidError with the file, the field, the value and what is allowed.
    """
    clusters: dict[str, tuple[Path, _Cluster]] = {}
    users: dict[str, tuple[Path, _User]] = {}
    contexts: dict[str, _Context] = {}
    current = ""
    for path in _existing(paths):
        file = _read(path)
        current = current or file.current_context
        for cluster in file.clusters or ():
            clusters.setdefault(cluster.name, (path.parent, cluster.cluster))
        for user in file.users or ():
            users.setdefault(user.name, (path.parent, user.user or _User()))
        for each in file.contexts or ():
            contexts.setdefault(each.name, each.context)
    chosen = _choose(contexts, context or current, f"{paths}: context")
    folder, cluster_ = _choose(clusters, chosen.cluster, f"{paths}: cluster of the context")
    user_folder, user_ = users.get(chosen.user, (folder, _User()))
    return _access(folder, cluster_, user_folder, user_, chosen.namespace)


def _existing(paths: str) -> list[Path]:
    names = [Path(name).expanduser() for name in paths.split(os.pathsep) if name]
    found = [path for path in names if path.is_file()]
    if not found:
        raise errors.InvalidError(
            f"kubeconfig: {paths!r} is no file; allowed: the path of a kubeconfig file",
            reason="KubeconfigNotFound",
            field="kubeconfig",
        )
    return found


def _read(path: Path) -> _File:
    # Pods have no kubeconfig, and need not hold the 0.8 MB of this.
    import yaml  # noqa: PLC0415 - as just said.

    from gpudeck.api import documents  # noqa: PLC0415 - it loads yaml.

    reason = "KubeconfigInvalid"
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()) or {}, _File)
    except yaml.YAMLError as error:
        raise documents.refused(error, f"kubeconfig: {path}", reason=reason) from error
    except (OSError, ValueError) as error:
        raise errors.InvalidError(
            f"kubeconfig: {path} cannot be read: {error}",
            reason=reason,
            field="kubeconfig",
        ) from error


def _choose(known: Mapping[str, Any], name: str, what: str) -> Any:
    if name in known:
        return known[name]
    raise errors.InvalidError(
        f"{what}: {name!r} is not there; allowed: {', '.join(sorted(known)) or 'none is defined'}",
        reason="KubeconfigInvalid",
        field="context",
    )


def _access(
    folder: Path, cluster: _Cluster, user_folder: Path, user: _User, namespace: str
) -> Access:
    tls = credentials.Tls(
        authority=_pem(folder, cluster.certificate_authority, cluster.certificate_authority_data),
        certificate=_pem(user_folder, user.client_certificate, user.client_certificate_data),
        key=_pem(user_folder, user.client_key, user.client_key_data),
        insecure=cluster.insecure_skip_tls_verify,
    )
    credential: credentials.Credential = credentials.FixedToken(user.token)
    if user.exec is not None:
        about = {
            "server": cluster.server,
            "certificate-authority-data": cluster.certificate_authority_data,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        }
        credential = executing.Plugin(user.exec, tls, about)
    elif user.token_file:
        credential = credentials.TokenFile(user_folder / user.token_file)
    return Access(
        server=_address(cluster.server, "server", ("https", "http")),
        tls=tls,
        credential=credential,
        server_name=cluster.tls_server_name or None,
        proxy=_address(cluster.proxy_url, "proxy-url", ("http", "https"))
        if cluster.proxy_url
        else None,
        namespace=namespace or "default",
    )


def _address(url: str, field: str, schemes: tuple[str, ...]) -> str:
    """A URL with a host. InvalidError shows none of its user and password."""
    try:
        found = urlsplit(url)
        if found.scheme in schemes and found.hostname and found.port != 0:
            return url.rstrip("/")
        shown = f"{found.scheme}://{found.netloc.rpartition('@')[2]}"
    except ValueError:  # Of a port that is no number, or a bracket that is not closed.
        shown = "what it says"
    allowed = " or ".join(f"{scheme}://host:port" for scheme in schemes)
    raise errors.InvalidError(
        f"kubeconfig: {field}: {shown} is not valid; allowed: {allowed}",
        reason="KubeconfigInvalid",
        field=field,
        allowed=allowed,
    )


def _pem(folder: Path, path: str, text: str) -> credentials.Pem:
    """Data in the file wins over a path, as in client-go."""
    if text:
        try:
            return credentials.Pem(text=base64.b64decode(text, validate=False).decode())
        except (binascii.Error, UnicodeDecodeError) as error:
            raise errors.InvalidError(
                f"kubeconfig: certificate data is not base64 of PEM text: {error}",
                reason="KubeconfigInvalid",
                field="kubeconfig",
            ) from error
    return credentials.Pem(path=folder / path if path else None)
