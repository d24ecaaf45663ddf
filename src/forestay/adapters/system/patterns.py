"""The patterns of the packs on this machine, read when the first failure wants them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.causes.pilot_finding import find_cause
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.jobs.job_document import AttemptResult, JobDocument
from forestay.formats.rules.pack_folder import folders, read_packs
from forestay.ports.exceptions.classifiers import CauseClassifiers

REMEMBERED = 1_000
"""Jobs of which is remembered why they failed."""


@dataclass(slots=True)
class Patterns(CauseClassifiers):
    """Reading takes a second, which no start of a process should wait for."""

    wrong: Callable[[str], None] = lambda _text: None
    """Told of what is wrong in a pack; the rest of it is used."""
    more: list[Path] = field(default_factory=folders)
    _classifier: Classifier | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _found: OrderedDict[str, tuple[AttemptResult | None, Evidence, CauseFinding]] = field(default_factory=OrderedDict)
    """By job: of which end and by which evidence."""

    async def classifier(self) -> Classifier:
        async with self._reading:
            if self._classifier is None:
                self._classifier = await asyncio.to_thread(self._read)
        return self._classifier

    async def find_cause(self, document: JobDocument, evidence: Evidence) -> CauseFinding:
        last, known = document.last, self._found.get(document.id)
        if known is not None and known[:2] == (last, evidence):
            return known[2]
        finding = find_cause(document, evidence, await self.classifier())
        self._found[document.id] = last, evidence, finding
        if len(self._found) > REMEMBERED:
            self._found.popitem(last=False)
        return finding

    def _read(self) -> Classifier:
        packs = read_packs(self.more)
        for name, problem in packs.problems:
            self.wrong(f"{name}: {problem}")
        return packs.classifier()
