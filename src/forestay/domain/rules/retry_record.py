"""The outcomes of an error's retried failures: the strongest evidence of whether another retry helps.

Derived from stored documents: of several incidents of one job with the same fingerprint, all but the last were retried without success; for the last one the job's document shows the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.incident import IncidentStatus
from forestay.domain.jobs.job_document import FINAL, JobDocument, State
from forestay.domain.jobs.lifecycle import Event


@dataclass(frozen=True, slots=True)
class RetryRecord:
    """Counts over the incidents of one fingerprint. Running retries and those with an unknown end are only in `seen`."""

    seen: int = 0
    retried: int = 0
    """Incidents whose retry has ended."""
    helped: int = 0
    """Those of them whose job succeeded."""
    whole: bool = True
    """All incidents were counted; otherwise only the newest."""

    @property
    def words(self) -> str:
        """`seen 14 times here, retry helped 12 of 13`."""
        seen = "seen once here" if self.seen == 1 else f"seen {self.seen}{'' if self.whole else '+'} times here"
        if self.retried:
            return f"{seen}, retry helped {self.helped} of {self.retried}"
        # Retries of older failures may have ended: they were not read.
        return f"{seen}, no retry has ended" if self.whole else seen


def retry_record(
    statuses: Iterable[IncidentStatus], jobs: Mapping[str, JobDocument], *, whole: bool = True
) -> RetryRecord:
    """The record of the incidents of one fingerprint, by their jobs; a missing job is no longer known."""
    by_job: dict[str, list[IncidentStatus]] = {}
    seen = 0
    for status in statuses:
        seen += 1
        if status.job:
            by_job.setdefault(status.job, []).append(status)
    retried = helped = 0
    for name, incidents in by_job.items():
        last = max(incidents, key=lambda status: (status.at, status.id))
        document = jobs.get(name)
        outcome = _outcome(last, document) if document is not None else None
        retried += len(incidents) - 1 + (outcome is not None)
        helped += outcome is True
    return RetryRecord(seen, retried, helped, whole)


def _outcome(last: IncidentStatus, document: JobDocument) -> bool | None:
    """Whether the job succeeded after its last failure of this kind; None: it was not retried, or has not ended."""
    if document.winner is not None:
        return True
    ended = document.state in FINAL or document.state is State.FAULTED
    tried = any(line.event == Event.CLAIM and line.at > last.at for line in document.history)
    return False if ended and tried else None
