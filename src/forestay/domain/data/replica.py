"""The replicas of a logical file, and the order in which they are tried.

A file is located by the rules of the elements, which cost nothing, and by the document of the file, which has what rules cannot express: replicas
at other paths, the size and digest, and which replicas failed. A file without a document is where the rules say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from forestay.domain.data.storage_element import StorageElement
from forestay.domain.jobs.inputs import catalogue_name

MAX_REPLICAS = 50
BAD_FOR = 3_600_000
"""Milliseconds for which a failed replica comes after all others; later it may have been recovered."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a file."""

    element: str
    path: str
    since: int | None = None
    """When it was added; None: known from the rules only."""
    bad_since: int | None = None
    why_bad: str = ""

    @property
    def place(self) -> tuple[str, str]:
        return self.element, self.path

    def bad(self, now: int) -> bool:
        return self.bad_since is not None and now < self.bad_since + BAD_FOR


@dataclass(frozen=True, slots=True)
class LogicalFile:
    """What is known of a file."""

    name: str
    """As sources name it: `lfn:NAME`, or `job:ID/PATH` for an output."""
    size: int | None = None
    sha256: str | None = None
    replicas: tuple[Replica, ...] = ()

    def with_replica(self, added: Replica) -> LogicalFile:
        """The file with another replica, or with one that is good again."""
        kept = tuple(replica for replica in self.replicas if replica.place != added.place)
        return replace(self, replicas=(*kept, added)[-MAX_REPLICAS:])

    def without(self, element: str, path: str | None = None) -> LogicalFile:
        """The file without the replicas on an element, or without the one at a path on it."""
        return replace(
            self,
            replicas=tuple(
                replica for replica in self.replicas if replica.element != element or path not in (None, replica.path)
            ),
        )

    def marked(self, element: str, path: str, *, bad: int | None, why: str = "") -> LogicalFile:
        """The file with a replica marked as failed, or as good again (`bad` is None)."""
        known = next((replica for replica in self.replicas if replica.place == (element, path)), Replica(element, path))
        return self.with_replica(replace(known, bad_since=bad, why_bad=why if bad is not None else ""))


class Viewpoint(NamedTuple):
    """From where a file is wanted."""

    tenant: str
    site: str = ""
    element: str = ""
    """The element that the pilot reports as nearest to it."""


def where(
    name: str, known: LogicalFile | None, elements: Mapping[str, StorageElement], view: Viewpoint, now: int
) -> LogicalFile:
    """All replicas of a file that this tenant may read, in the order in which to try them.

    First those on the pilot's own element, then those on elements of its site, then the others; replicas that failed within the last hour come last, the oldest failure first.
    """
    file = known or LogicalFile(name)
    plain = catalogue_name(name)
    if plain is not None:
        for element in elements.values():
            path = element.path_of(plain)
            if path is not None and all(replica.place != (element.name, path) for replica in file.replicas):
                file = file.with_replica(Replica(element.name, path))
    return replace(file, replicas=ordered(file.replicas, elements, view, now))


def ordered(
    replicas: Iterable[Replica], elements: Mapping[str, StorageElement], view: Viewpoint, now: int
) -> tuple[Replica, ...]:
    """Replicas by cost. Those on elements that are no longer configured, or not for this tenant, are left out."""
    rank = {name: place for place, name in enumerate(elements)}
    usable = [
        replica
        for replica in replicas
        if (element := elements.get(replica.element)) is not None and element.may_read(view.tenant, replica.path)
    ]

    def cost(replica: Replica) -> tuple[bool, int, bool, bool, int]:
        near = view.site in elements[replica.element].sites
        bad = replica.bad(now)
        return (
            bad,
            replica.bad_since or 0 if bad else 0,
            replica.element != view.element,
            not near,
            rank[replica.element],
        )

    return tuple(sorted(usable, key=cost))


def file_as_plain(file: LogicalFile) -> dict[str, Any]:
    """The stored form of a file's document."""
    return {
        "lfn": file.name,
        "size": file.size,
        "sha256": file.sha256,
        "replicas": [
            {
                "element": replica.element,
                "pfn": replica.path,
                "since": replica.since,
                "bad_since": replica.bad_since,
                **({"why": replica.why_bad} if replica.why_bad else {}),
            }
            for replica in file.replicas
        ],
    }


def file_from_plain(data: Mapping[str, Any]) -> LogicalFile:
    replicas: Sequence[Mapping[str, Any]] = data.get("replicas", ())
    return LogicalFile(
        data["lfn"],
        data.get("size"),
        data.get("sha256"),
        tuple(
            Replica(
                replica["element"],
                replica["pfn"],
                replica.get("since"),
                replica.get("bad_since"),
                replica.get("why", ""),
            )
            for replica in replicas
        ),
    )
