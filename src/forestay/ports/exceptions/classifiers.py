"""Provides the classifier of causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.causes.failure_pattern import FailurePattern
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.jobs.job_document import JobDocument


class PackExample(NamedTuple):
    """Evidence by which a pattern of a pack is tested."""

    pattern: FailurePattern
    evidence: Evidence


class SitePatterns(Protocol):
    """What was taught at this site."""

    async def patterns(self, tenant: str) -> tuple[FailurePattern, ...]:
        """Those of a tenant, seconds old at most; the same object for as long as nothing was changed. `Transient` if nobody knows them yet."""
        ...


class CauseClassifiers(Protocol):
    """Has the patterns of all packs, and those that were taught at this site."""

    async def classifier(self, tenant: str | None) -> Classifier:
        """The classifier of the packs on this machine, with what the tenant's operators taught; None: without. The first call may take a second."""
        ...

    async def pack_examples(self) -> Sequence[PackExample]:
        """Examples of all patterns in the packs on this machine, each of which its pattern must match. The first call may take a second."""
        ...

    async def find_cause(self, document: JobDocument, evidence: Evidence) -> CauseFinding:
        """Why a faulted job's last attempt did not end well. Its host and its incident are both asked about it: what was found is remembered for a while."""
        ...
