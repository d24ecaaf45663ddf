"""Caches the specifications that a server uses repeatedly. They never change, so a cached one stays valid.

The cache is bounded in number and in bytes. A TES task may contain whole files in its specification; a large one is not cached
at all but read again each time.
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
"""Bytes from which a specification is too large to be cached."""


class _CachedSpecification(NamedTuple):
    specification: Specification
    size: int


@dataclass(slots=True)
class SpecificationCache:
    """The service; one a server."""

    store: JobStore
    size: int = 0
    """Bytes of all cached specifications in stored form."""
    _known: OrderedDict[str, _CachedSpecification] = field(default_factory=OrderedDict)

    async def find(self, ids: Sequence[str]) -> dict[str, Specification]:
        """Those of the specifications that exist."""
        specifications = {name: self._known[name].specification for name in ids if name in self._known}
        missing = sorted({name for name in ids if name not in specifications})
        if missing:
            read = await self.store.get_specifications(missing)
            self.know(read.values())
            specifications |= read
        return specifications

    def know(self, specifications: Iterable[Specification]) -> None:
        """Cache specifications that are stored or about to be, so that immediate claims of their jobs need not read them back."""
        for specification in specifications:
            if specification.id in self._known:
                continue
            size = len(orjson.dumps(specification_to_json(specification)))
            if size <= LARGE:
                self._known[specification.id] = _CachedSpecification(specification, size)
                self.size += size
        while len(self._known) > MOST or self.size > MOST_BYTES:
            self.size -= self._known.popitem(last=False)[1].size
