"""Unpacks an image of an OCI layout into a folder.

Layers are untrusted: nothing in them can lead out of the folder, whatever links they contain, and every blob is checked against its digest.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import shutil
import tarfile
import zlib
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
_LEAST_SIZE = 512
_LONGEST_DOCUMENT = 4 << 20
"""What registries accept at most as a manifest."""


def _lzma_errors() -> tuple[type[Exception], ...]:
    """None where Python was built without it: tarfile refuses such layers by itself there."""
    with contextlib.suppress(ImportError):
        import lzma

        return (lzma.LZMAError,)
    return ()


_UNREADABLE: tuple[type[Exception], ...] = (
    tarfile.TarError,
    zlib.error,
    EOFError,
    gzip.BadGzipFile,
    UnicodeError,
    *_lzma_errors(),
)
"""What a layer that is cut off or is no archive raises while it is read."""


def machine() -> str:
    """The architecture of this host, as images call it."""
    return _MACHINES.get(os.uname().machine, os.uname().machine)


class OciLayout:
    """A folder with blobs and an index."""

    def __init__(self, place: str, tag: str) -> None:
        self._place = place
        self._name = f"oci:{place}" + (f":{tag}" if tag else "")
        try:
            index = self._read(os.path.join(place, "index.json"), "index")
        except FileNotFoundError as error:
            raise ImageError(NOT_FOUND, f"the image {self._name}: there is no OCI layout at {place}") from error
        chosen = self._chosen(index, tag)
        manifest = self._document(chosen, "manifest")
        self.digest = str(chosen["digest"])
        if manifest.get("mediaType", chosen.get("mediaType")) in _INDEXES or "manifests" in manifest:
            manifest = self._document(self._of_machine(manifest), "manifest")
        self._layers = self._entries(manifest, "layers")
        config = manifest.get("config")
        if not isinstance(config, dict):
            raise self._corrupt("its manifest names no configuration")
        self._config = self._document(config, "configuration")
        architecture = self._config.get("architecture")
        if architecture and architecture != machine():
            raise self._wrong_platform(str(architecture))

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the image sets."""
        config = self._config.get("config")
        lines = config.get("Env") if isinstance(config, dict) else None
        return dict(str(line).split("=", 1) for line in (lines if isinstance(lines, list) else ()) if "=" in str(line))

    def _chosen(self, index: dict[str, Any], tag: str) -> dict[str, Any]:
        manifests = self._entries(index, "manifests")
        named = [entry for entry in manifests if not tag or _part(entry, "annotations").get(_NAME) == tag]
        if len(named) == 1 or (named and tag):
            return named[0]
        if not named:
            missing = f"no tag {tag}" if tag else "no image"
            raise ImageError(NOT_FOUND, f"the image {self._name}: the layout has {missing}")
        raise ImageError(NOT_FOUND, f"the image {self._name}: the layout has {len(named)} images; name one by its tag")

    def _of_machine(self, index: dict[str, Any]) -> dict[str, Any]:
        manifests = self._entries(index, "manifests")
        for entry in manifests:
            if _part(entry, "platform").get("architecture") == machine():
                return entry
        raise self._wrong_platform(
            ", ".join(sorted({str(_part(entry, "platform").get("architecture")) for entry in manifests}))
        )

    def _entries(self, document: dict[str, Any], name: str) -> list[dict[str, Any]]:
        entries = document.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._corrupt(f"what it names as its {name} is no list of them")
        return entries

    def _corrupt(self, why: str) -> ImageError:
        return ImageError(CORRUPT, f"the image {self._name}: {why}")

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
            raise self._corrupt(f"the blob {kind}:{digest} is missing") from error
        if found.hexdigest() != digest:
            raise self._corrupt(f"the blob {kind}:{digest} has another digest")
        return path

    def _document(self, entry: dict[str, Any], kind: str) -> dict[str, Any]:
        return self._read(self._blob(entry), kind)

    def _read(self, path: str, kind: str) -> dict[str, Any]:
        with open(path, "rb") as source:
            content = source.read(_LONGEST_DOCUMENT + 1)
        if len(content) > _LONGEST_DOCUMENT:
            raise self._corrupt(f"its {kind} is longer than {_LONGEST_DOCUMENT >> 20} MiB")
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._corrupt(f"its {kind} cannot be read: {error}") from error
        if not isinstance(document, dict):
            raise self._corrupt(f"its {kind} is no JSON object")
        return document

    def unpack(self, target: str, most: int, go_on: Callable[[], None]) -> int:
        """Unpack all layers into a new folder, if they take at most so many bytes; gives how many. `go_on` is called again and again, and may raise."""
        os.mkdir(target)
        size = 0

        def take(more: int) -> None:
            nonlocal size
            go_on()
            size += more
            if size > most:
                raise ImageError(
                    UNSUPPORTED,
                    f"the image {self._name}: it takes more than the {most} bytes that there are for images",
                )

        for layer in self._layers:
            if "zstd" in str(layer.get("mediaType")):
                raise ImageError(
                    UNSUPPORTED, f"the image {self._name}: layers packed with zstd cannot be unpacked here"
                )
            path = self._blob(layer)
            try:
                with tarfile.open(path, "r:*") as archive:
                    _unpack_layer(archive, target, take)
            except _UNREADABLE as error:
                raise self._corrupt(f"a layer cannot be read: {error}") from error
        for path in _MOUNTED:
            inside(target, path.split("/"), make=True)
        return size


def _part(entry: dict[str, Any], name: str) -> dict[str, Any]:
    part = entry.get(name)
    return part if isinstance(part, dict) else {}


def _unpack_layer(archive: tarfile.TarFile, root: str, take: Callable[[int], None]) -> None:
    for member in archive:
        # Before anything of it is read: a few bytes may stand for a terabyte. An empty one takes a place, too.
        take(max(member.size, _LEAST_SIZE))
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
            _place(archive, member, os.path.join(folder, name), root, take)


def _place(
    archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, root: str, take: Callable[[int], None]
) -> None:
    if member.isdir():
        if os.path.islink(path) or not os.path.isdir(path):
            _remove(path)
            os.mkdir(path)
        os.chmod(path, (member.mode & 0o777) | 0o700)  # it must be possible to fill it and to take it away
        return
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
            while source is not None and (piece := source.read(_PIECE)):
                take(0)
                sink.write(piece)
            os.fchmod(sink.fileno(), (member.mode & 0o777) | 0o400)
    # A device or a pipe is left out: the runtime makes those that a container needs.


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
