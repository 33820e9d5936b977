# SPDX-License-Identifier: Apache-2.0
"""Write OCI layers, images and layouts so that equal input gives equal bytes.

Layers are uncompressed tar files: on one machine a copy is cheaper than gzip.
Times are zero, owners are kept as numbers, entries are sorted. Source: OCI image
specification 1.1 (layout, manifest, config).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


@dataclasses.dataclass(frozen=True)
class Layer:
    """A tar file on disk and its digest (`sha256:…`), which is also its diff id."""

    path: Path
    digest: str
    size: int


@dataclasses.dataclass(frozen=True)
class Image:
    """An image of a layout: its full reference, its layers bottom first, its run settings."""

    reference: str
    layers: tuple[Layer, ...]
    settings: Mapping[str, object]


def write_layer(
    tree: Path, target: Path, *, skip: Callable[[str], bool] = lambda _: False
) -> Layer:
    """Pack the folder `tree` into the tar file `target`; `skip` gets paths relative to it."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in _walk(tree):
            name = str(path.relative_to(tree))
            if not skip(name):
                _add(archive, path, name)
    return read_layer(target)


def read_layer(path: Path) -> Layer:
    """Describe a tar file that is there already."""
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return Layer(path, f"sha256:{digest}", path.stat().st_size)


def _walk(tree: Path) -> Iterable[Path]:
    for folder, folders, files in os.walk(tree):
        folders.sort()
        base = Path(folder)
        links = [name for name in folders if (base / name).is_symlink()]
        for name in sorted([*files, *links]):
            yield base / name
        yield from (base / name for name in folders if name not in links)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    entry = archive.gettarinfo(path, name)
    if entry is None:  # A socket: tar cannot hold it and no image needs it.
        return
    entry.mtime, entry.uname, entry.gname = 0, "", ""
    if entry.isreg():
        with path.open("rb") as handle:
            archive.addfile(entry, handle)
    else:
        archive.addfile(entry)


def write_layout(folder: Path, images: Iterable[Image]) -> None:
    """Write an OCI layout with `images`; layers are hard links where the file system allows it."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifests = []
    for image in images:
        for layer in image.layers:
            _link(layer.path, blobs / layer.digest.partition(":")[2])
        manifests.append(_write_manifest(blobs, image))
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    (folder / "index.json").write_bytes(_encode(index))
    (folder / "oci-layout").write_bytes(_encode({"imageLayoutVersion": "1.0.0"}))


def _write_manifest(blobs: Path, image: Image) -> dict[str, object]:
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(image.settings),
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in image.layers]},
        "history": [{"created_by": "gpudeck lab"} for _ in image.layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _write_blob(blobs, CONFIG, _encode(config)),
        "layers": [
            {"mediaType": LAYER, "digest": layer.digest, "size": layer.size}
            for layer in image.layers
        ],
    }
    described = _write_blob(blobs, MANIFEST, _encode(manifest))
    described["annotations"] = {
        "io.containerd.image.name": image.reference,
        "org.opencontainers.image.ref.name": image.reference.rpartition(":")[2],
    }
    return described


def _write_blob(blobs: Path, media_type: str, content: bytes) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _link(source: Path, target: Path) -> None:
    if not target.exists():
        try:
            target.hardlink_to(source)
        except OSError:
            target.symlink_to(source)


def _encode(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def write_archive(layout: Path, target: Path) -> None:
    """Pack a layout into one tar file that `ctr images import` reads."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT, dereference=True) as archive:
        for path in _walk(layout):
            _add(archive, path, str(path.relative_to(layout)))
