"""The image that a job names, and which runtimes can run it.

``debian:12`` and ``docker://debian:12`` are in a registry, ``oci:/folder:tag`` is an OCI layout, ``oci-archive:/file.tar`` and ``docker-archive:/file.tar`` are
one file with layers, ``/images/tool.sif`` is an image of Apptainer, and any other whole path is an unpacked file system. ``@sha256:…`` pins an image of a
registry. The servers read references in the same way, in `forestay.domain.jobs.container_image`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

APPTAINER, PODMAN, BUBBLEWRAP = "apptainer", "podman", "bubblewrap"
REGISTRY, SIF_REGISTRY, SIF, LAYOUT, ARCHIVE, FOLDER = "registry", "sif-registry", "sif", "layout", "archive", "folder"

SUITABLE = {
    REGISTRY: (APPTAINER, PODMAN),
    SIF_REGISTRY: (APPTAINER,),
    SIF: (APPTAINER,),
    LAYOUT: (BUBBLEWRAP, APPTAINER, PODMAN),
    ARCHIVE: (APPTAINER, PODMAN),
    FOLDER: (BUBBLEWRAP, APPTAINER, PODMAN),
}
"""The runtimes for each kind of image, the one that is taken first coming first."""
_SIF = (".sif", ".simg", ".img", ".sqsh", ".squashfs")
_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})$")
_SCHEMES = {"docker": REGISTRY, "library": SIF_REGISTRY, "oras": SIF_REGISTRY, "shub": SIF_REGISTRY}


@dataclass(frozen=True)
class ImageReference:
    """One image as a job names it."""

    text: str
    kind: str
    place: str  # the path, or the name at the registry, without tag and digest of a layout
    tag: str = ""  # of a layout
    digest: str = ""  # the digest that it is pinned to

    @property
    def suitable(self) -> tuple[str, ...]:
        """The runtimes that can run it, the preferred one first."""
        return SUITABLE[self.kind]


def read_reference(text: str) -> ImageReference:
    """Read an image's name; raises ValueError for one that means nothing here."""
    scheme, separator, rest = text.partition("://")
    if separator:
        if scheme not in _SCHEMES or not rest:
            raise ValueError(f"images are not known by {scheme}://; use docker://, oras://, library:// or a path")
        return _registered(text, _SCHEMES[scheme], rest)
    for prefix, kind in (("oci:", LAYOUT), ("oci-archive:", ARCHIVE), ("docker-archive:", ARCHIVE)):
        if text.startswith(prefix + "/"):
            place, _, tag = text[len(prefix) :].partition(":")
            return ImageReference(text, kind, os.path.normpath(place), tag)
        if text.startswith(prefix) and kind == ARCHIVE:
            raise ValueError(f"the path after {prefix} is not a whole path")
    if text.startswith("/"):
        return ImageReference(text, SIF if text.endswith(_SIF) else FOLDER, os.path.normpath(text))
    if not text or text.startswith("."):
        raise ValueError("an image is a name at a registry or a whole path")
    return _registered(text, REGISTRY, text)


def _registered(text: str, kind: str, name: str) -> ImageReference:
    pinned = _DIGEST.search(name)
    if not pinned:
        return ImageReference(text, kind, name)
    # The tools accept a digest or a tag, not both; the digest is sufficient.
    folder, slash, last = name[: pinned.start()].rpartition("/")
    return ImageReference(text, kind, f"{folder}{slash}{last.partition(':')[0]}@{pinned[1]}", digest=pinned[1])
