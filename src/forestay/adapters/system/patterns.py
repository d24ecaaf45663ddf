"""The patterns of the packs on this machine, read at the first failure that needs them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.causes.failure_pattern import FailurePattern
from forestay.domain.exceptions.causes.pilot_finding import find_cause
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.jobs.job_document import AttemptResult, JobDocument
from forestay.formats.rules.evidence_json import read_evidence
from forestay.formats.rules.pack_folder import folders, read_packs
from forestay.ports.exceptions.classifiers import CauseClassifiers, PackExample, SitePatterns

REMEMBERED = 1_000
"""The most jobs whose cause of failure is cached."""
TENANTS = 100
"""The most tenants with patterns of their own whose classifier is cached."""


@dataclass(slots=True)
class Patterns(CauseClassifiers):
    """Reads the packs on first use: it takes a second, for which no start of a process should wait."""

    wrong: Callable[[str], None] = lambda _text: None
    """Called with the errors in a pack; the rest of it is used."""
    more: list[Path] = field(default_factory=folders)
    site: SitePatterns | None = None
    """The patterns taught at this site, beside the packs."""
    _classifier: Classifier | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _examples: Sequence[PackExample] = ()
    _of_tenants: OrderedDict[str, tuple[tuple[FailurePattern, ...], Classifier]] = field(default_factory=OrderedDict)
    """By tenant: of which taught patterns."""
    _found: OrderedDict[str, tuple[AttemptResult | None, Evidence, Classifier, CauseFinding]] = field(
        default_factory=OrderedDict
    )
    """By job: of which end, by which evidence and patterns."""

    async def classifier(self, tenant: str | None) -> Classifier:
        async with self._reading:
            if self._classifier is None:
                self._classifier = await asyncio.to_thread(self._read)
        taught = await self.site.patterns(tenant) if self.site is not None and tenant is not None else ()
        if not taught or tenant is None:
            return self._classifier
        known = self._of_tenants.get(tenant)
        if known is None or known[0] is not taught:
            known = self._of_tenants[tenant] = taught, self._classifier.with_patterns(taught)
            if len(self._of_tenants) > TENANTS:
                self._of_tenants.popitem(last=False)
        return known[1]

    async def pack_examples(self) -> Sequence[PackExample]:
        async with self._reading:
            if not self._examples:
                self._examples = await asyncio.to_thread(self._read_examples)
        return self._examples

    async def find_cause(self, document: JobDocument, evidence: Evidence) -> CauseFinding:
        classifier = await self.classifier(document.tenant)
        last, known = document.last, self._found.get(document.id)
        if known is not None and known[:2] == (last, evidence) and known[2] is classifier:
            return known[3]
        finding = find_cause(document, evidence, classifier)
        self._found[document.id] = last, evidence, classifier, finding
        if len(self._found) > REMEMBERED:
            self._found.popitem(last=False)
        return finding

    def _read_examples(self) -> list[PackExample]:
        return [
            PackExample(pack_pattern.pattern, read_evidence(plain))
            for pack_pattern in read_packs(self.more).patterns
            for plain in pack_pattern.fixtures.matches
        ]

    def _read(self) -> Classifier:
        packs = read_packs(self.more)
        for name, problem in packs.problems:
            self.wrong(f"{name}: {problem}")
        return packs.classifier()
