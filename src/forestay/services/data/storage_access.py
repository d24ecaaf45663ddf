"""Access to storage elements: sources for pilots, addresses for their uploads, manifests for consumers, and removal of leftover files."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import orjson

from forestay.domain.data.storage_element import AccessProtocol, Door, StorageElement
from forestay.domain.jobs.inputs import wrong_name
from forestay.domain.jobs.job_document import Manifest
from forestay.ports.data.storage import ElementFiles, Signer
from forestay.ports.errors import Permanent

Json = dict[str, Any]
GET_SECONDS = 3_600
"""Seconds for which a URL for reading is valid: a pilot may have many files to stage."""
PUT_SECONDS = 3_600
MAX_MANIFEST = 16 << 20
REMEMBER = 256
"""The most manifests in memory; many consumers of a scatter read those of the same producers."""
ELEMENT = "element:"


class ElementPath(NamedTuple):
    """A file on an element, in the form of a manifest's path: `element:NAME/PATH`."""

    element: str
    path: str


class ManifestFile(NamedTuple):
    """A file of a manifest."""

    size: int
    sha256: str


@dataclass(slots=True)
class StorageAccess:
    """The service."""

    elements: Mapping[str, StorageElement]
    signer: Signer
    files: Mapping[AccessProtocol, ElementFiles]
    _manifests: OrderedDict[tuple[str, str], Mapping[str, ManifestFile]] = field(default_factory=OrderedDict)

    def outputs_for(self, tenant: str, site: str, element: str) -> StorageElement | None:
        """The element for the outputs of a pilot's jobs: its own, or the first one of its site; None: the pilot's own folder."""
        usable = [
            storage_element
            for storage_element in self.elements.values()
            if storage_element.outputs and storage_element.serves(tenant)
        ]
        own = [storage_element for storage_element in usable if storage_element.name == element]
        near = [storage_element for storage_element in usable if site in storage_element.sites]
        return next(iter([*own, *near]), None)

    def sources(self, element: str, path: str, protocol: str = "") -> list[Json]:
        """The sources from which a pilot can read a file of an element, one for each of its doors. Without its credentials an element has fewer."""
        sources: list[Json] = []
        known = self.elements[element]
        for door in known.ways(protocol):
            source: Json = {"kind": door.kind.value, "element": element}
            try:
                place = self._place(known, door, path, "GET", GET_SECONDS)
            except Permanent:
                continue
            if door.kind is AccessProtocol.FILE:
                sources.append(source | {"path": place})
            else:
                sources.append(source | {"url": place, "private": known.private})
        return sources

    def uploads(self, element: str, paths: Sequence[str]) -> Mapping[str, str]:
        """Signed URLs for uploading files to an element, once each and soon. `Permanent` where uploads work otherwise."""
        known = self.elements[element]
        door = known.doors[0]
        if door.kind is not AccessProtocol.S3:
            raise Permanent(f"{element} needs no signed addresses")
        return {path: self._place(known, door, path, "PUT", PUT_SECONDS) for path in paths}

    async def listed(self, tenant: str, manifest: Manifest) -> Mapping[str, ManifestFile]:
        """The files that a committed manifest on an element names. `Permanent` if it is gone, not the committed one, or not of this tenant."""
        where = element_path(manifest.path)
        element = self.elements.get(where.element) if where is not None else None
        if where is None or element is None or not element.may_read(tenant, where.path):
            raise Permanent(f"the manifest {manifest.path} is on no storage element that this tenant may read")
        known = self._manifests.get((manifest.path, manifest.sha256))
        if known is not None:
            return known
        content = await self.read(element, where.path, MAX_MANIFEST)
        if content is None:
            raise Permanent(f"the manifest {manifest.path} is gone")
        if hashlib.sha256(content).hexdigest() != manifest.sha256:
            raise Permanent(f"{manifest.path} is not the manifest that was committed")
        files = _files_of(content, manifest.path)
        self._manifests[manifest.path, manifest.sha256] = files
        while len(self._manifests) > REMEMBER:
            self._manifests.popitem(last=False)
        return files

    async def read(self, element: StorageElement, path: str, most: int) -> bytes | None:
        door = self._door(element)
        return await self.files[door.kind].read(self._place(element, door, path, "GET", 60), most)

    async def remove(self, element: StorageElement, path: str) -> bool:
        """Delete a file of the outputs on an element, and return whether it existed."""
        door = self._door(element)
        within = door.place(element.outputs or "")
        return await self.files[door.kind].remove(self._place(element, door, path, "DELETE", 60), within)

    async def folders(self, element: StorageElement, path: str) -> Sequence[str]:
        door = self._door(element)
        return await self.files[door.kind].folders(door.place(path))

    async def clear(self, element: StorageElement, path: str) -> int:
        """Delete the folder of an attempt."""
        door = self._door(element)
        return await self.files[door.kind].clear(door.place(path))

    def forget(self, manifest: Manifest) -> None:
        """Forget a manifest whose files are gone."""
        self._manifests.pop((manifest.path, manifest.sha256), None)

    def _door(self, element: StorageElement) -> Door:
        """The door of an element that this process can use."""
        door = next((door for door in element.doors if door.kind in self.files), None)
        if door is None:
            raise Permanent(f"no transport for {element.name}")
        return door

    def _place(
        self, element: StorageElement, door: Door, path: str, method: Literal["GET", "PUT", "DELETE"], seconds: int
    ) -> str:
        if door.kind is AccessProtocol.FILE:
            return door.place(path)
        if door.kind is AccessProtocol.ROOT:
            return door.place(path)
        url = door.place(quote(path, safe="/~"))
        return self.signer.sign(element, method, url, seconds) if door.kind is AccessProtocol.S3 else url


def element_path(text: str) -> ElementPath | None:
    """The element and path that a manifest's path names; None for a path of another kind."""
    if not text.startswith(ELEMENT):
        return None
    element, _, path = text.removeprefix(ELEMENT).partition("/")
    return ElementPath(element, path) if element and path else None


def _files_of(content: bytes, path: str) -> dict[str, ManifestFile]:
    """The files of a manifest. It was written by a pilot: no name may lead out of its folder."""
    try:
        files = {file["path"]: ManifestFile(file["bytes"], file["sha256"]) for file in orjson.loads(content)["files"]}
        sound = all(
            isinstance(name, str) and isinstance(about.size, int) and isinstance(about.sha256, str)
            for name, about in files.items()
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Permanent(f"{path} is not a manifest") from error
    if not sound or any(wrong_name(name) for name in files):
        raise Permanent(f"{path} is not a manifest, or names files outside its folder")
    return files
