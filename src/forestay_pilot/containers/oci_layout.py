"""Unpacks an image of an OCI layout into a folder.

Layers are untrusted: nothing in them can lead out of the folder, whatever links they contain, and every blob is checked against its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tarfile
from typing import Any, Callable

from forestay_pilot.containers.image_error import CORRUPT, NOT_FOUND, PLATFORM, UNSUPPORTED, ImageError

_NAME = "org.opencontainers.image.ref.name"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_GONE, _OPAQUE = ".wh.", ".wh..wh..opq"
_MOST_LINKS = 40
_MOUNTED = ("dev", "proc", "sys", "tmp", "run", "var/tmp")
"""Folders that runtimes mount something at, and that small images may lack."""
_PIECE = 1 << 20


def machine() -> str:
    """The architecture of this host, as images call it."""
    return _MACHINES.get(os.uname().machine, os.uname().machine)


class OciLayout:
    """A folder with blobs and an index."""

    def __init__(self, place: str, tag: str) -> None:
        self._place = place
        self._name = f"oci:{place}" + (f":{tag}" if tag else "")
        try:
            with open(os.path.join(place, "index.json"), "rb") as source:
                index = json.load(source)
        except FileNotFoundError as error:
            raise ImageError(NOT_FOUND, f"the image {self._name}: there is no OCI layout at {place}") from error
        except ValueError as error:
            raise ImageError(CORRUPT, f"the image {self._name}: its index cannot be read: {error}") from error
        chosen = self._chosen(index, tag)
        self.digest = str(chosen["digest"])
        manifest = self._document(chosen)
        if manifest.get("mediaType", chosen.get("mediaType")) in _INDEXES or "manifests" in manifest:
            chosen = self._of_machine(manifest)
            manifest = self._document(chosen)
        self._manifest = manifest
        self.config: dict[str, Any] = self._document(manifest["config"])
        architecture = self.config.get("architecture")
        if architecture and architecture != machine():
            raise self._wrong_platform(str(architecture))

    def _chosen(self, index: dict[str, Any], tag: str) -> dict[str, Any]:
        manifests = [entry for entry in index.get("manifests", ()) if isinstance(entry, dict)]
        named = [entry for entry in manifests if not tag or (entry.get("annotations") or {}).get(_NAME) == tag]
        if len(named) == 1 or (named and tag):
            return named[0]
        if not named:
            raise ImageError(NOT_FOUND, f"the image {self._name}: the layout has no tag {tag}")
        raise ImageError(NOT_FOUND, f"the image {self._name}: the layout has {len(named)} images; name one by its tag")

    def _of_machine(self, index: dict[str, Any]) -> dict[str, Any]:
        for entry in index.get("manifests", ()):
            if (entry.get("platform") or {}).get("architecture") == machine():
                return dict(entry)
        known = sorted({str((entry.get("platform") or {}).get("architecture")) for entry in index.get("manifests", ())})
        raise self._wrong_platform(", ".join(known))

    def _wrong_platform(self, known: str) -> ImageError:
        return ImageError(PLATFORM, f"the image {self._name} is for {known}, and this host is {machine()}")

    def _blob(self, entry: dict[str, Any]) -> str:
        kind, _, digest = str(entry.get("digest")).partition(":")
        if kind != "sha256" or not digest.isalnum():
            raise ImageError(UNSUPPORTED, f"the image {self._name}: a digest of kind {kind[:20]}")
        path = os.path.join(self._place, "blobs", kind, digest)
        found = hashlib.sha256()
        try:
            with open(path, "rb") as source:
                for piece in iter(lambda: source.read(_PIECE), b""):
                    found.update(piece)
        except FileNotFoundError as error:
            raise ImageError(CORRUPT, f"the image {self._name}: the blob {kind}:{digest} is missing") from error
        if found.hexdigest() != digest:
            raise ImageError(CORRUPT, f"the image {self._name}: the blob {kind}:{digest} has another digest")
        return path

    def _document(self, entry: dict[str, Any]) -> dict[str, Any]:
        with open(self._blob(entry), "rb") as source:
            return dict(json.load(source))

    def unpack(self, target: str, go_on: Callable[[], None]) -> int:
        """Unpack all layers into a new folder; gives the bytes of its files. `go_on` is called again and again, and may raise."""
        os.mkdir(target)
        size = 0
        for layer in self._manifest["layers"]:
            if "zstd" in str(layer.get("mediaType")):
                raise ImageError(
                    UNSUPPORTED, f"the image {self._name}: layers packed with zstd cannot be unpacked here"
                )
            path = self._blob(layer)
            try:
                with tarfile.open(path, "r:*") as archive:
                    size += _unpack_layer(archive, target, go_on)
            except tarfile.TarError as error:
                raise ImageError(CORRUPT, f"the image {self._name}: a layer cannot be read: {error}") from error
        for path in _MOUNTED:
            inside(target, path.split("/"), make=True)
        return size


def _unpack_layer(archive: tarfile.TarFile, root: str, go_on: Callable[[], None]) -> int:
    size = 0
    for member in archive:
        go_on()
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        if not parts or ".." in parts:
            continue
        folder = inside(root, parts[:-1], make=True)
        if folder is None:
            continue
        name = parts[-1]
        if name == _OPAQUE:
            for entry in os.listdir(folder):
                _remove(os.path.join(folder, entry))
        elif name.startswith(_GONE):
            gone = name[len(_GONE) :]
            if gone not in ("", ".", ".."):
                _remove(os.path.join(folder, gone))
        else:
            size += _place(archive, member, os.path.join(folder, name), root)
    return size


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, root: str) -> int:
    if member.isdir():
        if os.path.islink(path) or not os.path.isdir(path):
            _remove(path)
            os.mkdir(path)
        os.chmod(path, (member.mode & 0o777) | 0o700)  # it must be possible to fill it and to take it away
        return 0
    _remove(path)
    if member.issym():
        os.symlink(member.linkname, path)
    elif member.islnk():
        parts = [part for part in member.linkname.split("/") if part not in ("", ".")]
        folder = inside(root, parts[:-1]) if parts and ".." not in parts else None
        if folder is not None:
            with contextlib.suppress(FileNotFoundError):
                os.link(os.path.join(folder, parts[-1]), path, follow_symlinks=False)
    elif member.isfile():
        source = archive.extractfile(member)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as sink:
            if source is not None:
                shutil.copyfileobj(source, sink, _PIECE)
            os.fchmod(sink.fileno(), (member.mode & 0o777) | 0o400)
        return member.size
    return 0  # a device or a pipe: the runtime makes those that a container needs


def inside(root: str, parts: list[str], *, make: bool = False) -> str | None:
    """The real folder of a path of the image, links followed as if `root` were the root; None where there is none and none is made."""
    left, done, links = list(reversed(parts)), [root], 0
    while left:
        part = left.pop()
        if part == "..":
            if len(done) > 1:
                done.pop()
            continue
        path = os.path.join(*done, part)
        if os.path.islink(path):
            links += 1
            if links > _MOST_LINKS:
                return None
            target = os.readlink(path)
            if target.startswith("/"):
                done = [root]
            left += [word for word in reversed(target.split("/")) if word not in ("", ".")]
            continue
        if not os.path.isdir(path):
            if not make or os.path.lexists(path):
                return None
            os.mkdir(path)
        done.append(part)
    return os.path.join(*done)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
