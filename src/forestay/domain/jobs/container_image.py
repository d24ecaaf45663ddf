"""The container image that a job names, and which runtimes can run it.

Pilots parse names in the same way, in `forestay_pilot.containers.image_reference`; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

LONGEST = 1000
"""Characters of an image's name."""
_WHOLE = re.compile(r"[A-Za-z0-9/][^\x00-\x20\x7f]*")
_SIF = (".sif", ".simg", ".img", ".sqsh", ".squashfs")
_UNPACKED = ("bubblewrap", "apptainer", "podman")
_SCHEMES = {
    "docker": ("apptainer", "podman"),
    "library": ("apptainer",),
    "oras": ("apptainer",),
    "shub": ("apptainer",),
}
RUNTIMES = "container_runtimes"
"""The field of a job's document for the runtimes that can run its image; a job without it needs none."""


def image_problem(image: str) -> str | None:
    """The error in an image's name; None if it is valid."""
    if len(image) > LONGEST or not _WHOLE.fullmatch(image):
        return f"an image is a name of at most {LONGEST} characters without spaces: debian:12, docker://host/name:tag, oci:/folder:tag or a whole path"
    return None if suitable_runtimes(image) else "no runtime knows such an image; use a name at a registry, docker://, oras://, library://, oci:/folder:tag, oci-archive:/file, docker-archive:/file or a whole path"  # fmt: skip


def suitable_runtimes(image: str) -> tuple[str, ...]:
    """The container runtimes that can run an image, the preferred one first; none for an invalid name."""
    scheme, separator, rest = image.partition("://")
    if separator:
        return _SCHEMES.get(scheme, ()) if rest else ()
    if image.startswith("oci:/"):
        return _UNPACKED
    if image.startswith(("oci-archive:", "docker-archive:")):
        return ("apptainer", "podman") if image.partition(":")[2].startswith("/") else ()
    if image.startswith("/"):
        return ("apptainer",) if image.endswith(_SIF) else _UNPACKED
    return _SCHEMES["docker"] if image and not image.startswith(".") else ()


def wanted_runtimes(extra: Mapping[str, object]) -> frozenset[str]:
    """The runtimes one of which a job needs, according to its document; empty: it needs none."""
    named = extra.get(RUNTIMES)
    return frozenset(str(name) for name in named) if isinstance(named, list | tuple) else frozenset()


def may_run(extra: Mapping[str, object], runtimes: Collection[str] | None) -> bool:
    """Whether a pilot with these runtimes can run a job; None: it does not report its runtimes."""
    wanted = wanted_runtimes(extra)
    return not wanted or runtimes is None or not wanted.isdisjoint(runtimes)
