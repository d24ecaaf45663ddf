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
    """The failure patterns added at this site."""

    async def patterns(self, tenant: str) -> tuple[FailurePattern, ...]:
        """The patterns of a tenant, at most seconds old; the same object until they change. `Transient` if they have not been read yet."""
        ...


class CauseClassifiers(Protocol):
    """Provides the patterns of all packs, and those added at this site."""

    async def classifier(self, tenant: str | None) -> Classifier:
        """The classifier of the packs on this machine, with the patterns of the tenant's operators; None: without any. The first call may take a second."""
        ...

    async def pack_examples(self) -> Sequence[PackExample]:
        """Examples of all patterns in the packs on this machine, each of which its pattern must match. The first call may take a second."""
        ...

    async def find_cause(self, document: JobDocument, evidence: Evidence) -> CauseFinding:
        """Why the last attempt of a failed job did not succeed. Host health and the incident both need it: the result is cached for a while."""
        ...
