"""Caches the specifications that a server uses repeatedly. They never change, so a cached one stays valid.

What is kept is bounded in number and in bytes. A task of TES may bring whole files along in its specification, and one that is large is not kept
at all: it is read again by whoever needs it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from forestay.domain.jobs.specification import Specification
from forestay.formats.jobs.job_json import specification_to_json
from forestay.ports.jobs.job_store import JobStore

MOST = 5_000
MOST_BYTES = 64 << 20
LARGE = 256 << 10
"""Bytes of one that is not worth its place."""


class _CachedSpecification(NamedTuple):
    specification: Specification
    size: int


@dataclass(slots=True)
class SpecificationCache:
    """The service; one a server."""

    store: JobStore
    size: int = 0
    """Bytes of all that are kept, as they are written."""
    _known: OrderedDict[str, _CachedSpecification] = field(default_factory=OrderedDict)

    async def find(self, ids: Sequence[str]) -> dict[str, Specification]:
        """Those of them that there are."""
        specifications = {name: self._known[name].specification for name in ids if name in self._known}
        missing = sorted({name for name in ids if name not in specifications})
        if missing:
            read = await self.store.get_specifications(missing)
            self.know(read.values())
            specifications |= read
        return specifications

    def know(self, specifications: Iterable[Specification]) -> None:
        """These are stored, or about to be: whoever claims their jobs at once need not read them back."""
        for specification in specifications:
            if specification.id in self._known:
                continue
            size = len(orjson.dumps(specification_to_json(specification)))
            if size <= LARGE:
                self._known[specification.id] = _CachedSpecification(specification, size)
                self.size += size
        while len(self._known) > MOST or self.size > MOST_BYTES:
            self.size -= self._known.popitem(last=False)[1].size
