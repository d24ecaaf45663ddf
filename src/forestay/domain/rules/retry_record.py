"""The outcomes of an error's retried failures: the strongest evidence of whether another retry helps.

Read off what is stored anyway: of several incidents of one job with the same fingerprint, all but the last were tried again in vain; of the last one the job's document tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.incident import IncidentStatus
from forestay.domain.jobs.job_document import FINAL, JobDocument, State
from forestay.domain.jobs.lifecycle import Event


@dataclass(frozen=True, slots=True)
class RetryRecord:
    """Counts over the incidents of one fingerprint. What is being tried, and what nobody knows any more, is in `seen` alone."""

    seen: int = 0
    retried: int = 0
    """Of these another try has ended."""
    helped: int = 0
    """And the job ended well."""
    whole: bool = True
    """All incidents were counted; else the newest."""

    @property
    def words(self) -> str:
        """`seen 14 times here, retry helped 12 of 13`."""
        seen = "seen once here" if self.seen == 1 else f"seen {self.seen}{'' if self.whole else '+'} times here"
        return (
            f"{seen}, retry helped {self.helped} of {self.retried}" if self.retried else f"{seen}, no retry has ended"
        )


def retry_record(
    statuses: Iterable[IncidentStatus], jobs: Mapping[str, JobDocument], *, whole: bool = True
) -> RetryRecord:
    """The record of incidents of one fingerprint, by the jobs that they are about; a job that is not there is not known any more."""
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
    """Whether the job ended well after its last failure of this kind; None: it was not tried again, or has not ended."""
    if document.winner is not None:
        return True
    ended = document.state in FINAL or document.state is State.FAULTED
    tried = any(line.event == Event.CLAIM and line.at > last.at for line in document.history)
    return False if ended and tried else None
