"""Where the classifier of causes comes from."""

from __future__ import annotations

from typing import Protocol

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.jobs.job_document import JobDocument


class CauseClassifiers(Protocol):
    """Has the patterns of all packs."""

    async def classifier(self) -> Classifier:
        """The classifier of the packs on this machine; the first call may take a second."""
        ...

    async def find_cause(self, document: JobDocument, evidence: Evidence) -> CauseFinding:
        """Why a faulted job's last attempt did not end well. Its host and its incident are both asked about it: what was found is remembered for a while."""
        ...
