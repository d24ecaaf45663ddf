"""Classifies waiting failures again: by a pattern that was taught since, or by the cause that a person assigned to one of them.

A failure that gets another cause is decided anew, and that decision is handled like every other: safeguards, act, record. The recorded incident does not change; its status gets the new cause, its
fingerprint and the deciding pattern. The action comes first, then the status: after a crash in between, the next process finds the failure unchanged or no longer waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.taught_pattern import TaughtPattern
from forestay.domain.exceptions.evidence.evidence import PreparedEvidence
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.inbox import asks_approval
from forestay.domain.exceptions.incidents.incident import (
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    as_judged,
    context_part,
    deciding_pattern,
    is_about,
    judged_again,
)
from forestay.domain.exceptions.incidents.retry_policy import with_verdict
from forestay.domain.jobs.claim import needs_person
from forestay.domain.jobs.job_document import JobDocument
from forestay.formats.rules.evidence_json import finding_to_json, read_evidence
from forestay.ports.errors import Conflict, Transient
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.ports.jobs.job_store import Written
from forestay.services.exceptions.detect.failure_detector import FailedAttempt, PastFailures
from forestay.services.exceptions.detect.taught_patterns import TaughtPatterns
from forestay.services.exceptions.exception_event import is_job_failure
from forestay.services.exceptions.pipeline import BULK, ExceptionPipeline

TRIES = 5
"""Attempts to write a status in case of conflicts."""


class Reviewed(NamedTuple):
    """The result of classifying waiting failures again."""

    judged: int
    """The number of failures that have another cause now."""
    whole: bool
    """All waiting failures were checked; else a reconciler continues."""
    now: str = ""
    """The fingerprint, with the new cause, of the error that the pattern was made from; empty: none of its failures waited."""


class _Held(NamedTuple):
    status: IncidentStatus
    incident: Incident
    document: JobDocument


@dataclass(slots=True)
class FailureReview:
    """The service."""

    pipeline: ExceptionPipeline
    taught: TaughtPatterns
    _done_once: set[tuple[str, str, int]] = field(default_factory=set)
    """Notes that were processed once, and are kept until every process has the pattern."""

    async def look(self) -> None:
        """Classify waiting failures again by all new patterns: at once, and once more when every process has them. A reconciler calls this every few seconds."""
        notes = await self.taught.notes()
        self._done_once &= {(note.tenant, note.pattern, note.at) for note in notes}
        for note in notes:
            key, last = (note.tenant, note.pattern, note.at), self.taught.is_known_to_all(note)
            if key in self._done_once and not last:
                continue
            pattern = (await self.taught.pack(note.tenant)).get(note.pattern)
            if pattern is not None:
                await self.by_pattern(note.tenant, pattern)
            self._done_once.add(key)
            if last:
                await self.taught.done(note)

    async def by_pattern(self, tenant: str, pattern: TaughtPattern, *, pages: int | None = None) -> Reviewed:
        """Classify again the error that a pattern was made from, and waiting failures of unknown cause that match it; `pages`: at most this many times `BULK` of each."""
        error = IncidentQuery(
            tenant,
            kind=ExceptionType.ABORT.value,
            states=frozenset({IncidentState.HELD}),
            fingerprint=pattern.fingerprint,
        )
        judged, whole, now = 0, True, ""
        for query in (error, replace(error, fingerprint=None, cause="unknown")):
            cursor, read = None, 0
            while True:
                page = await self.pipeline.incidents.find(query, sort="at", limit=BULK, cursor=cursor)
                # Read by id: a search may lag, and return the former state of what was classified a moment ago.
                now_stored = await self.pipeline.incidents.get_statuses([stored.status.id for stored in page.statuses])
                statuses = [stored.status for stored in now_stored.values()]
                fingerprints = await self._judge(await self._still_held(statuses), pattern)
                judged += len(fingerprints)
                now = now or (fingerprints[0] if fingerprints and query is error else "")
                cursor, read = page.cursor, read + 1
                if cursor is None:
                    break
                if read == pages:
                    whole = False
                    break
        return Reviewed(judged, whole, now)

    async def correct(self, incident: str, finding: CauseFinding) -> None:
        """Assign to one waiting failure the cause given by a person. `Conflict` if it does not wait for a person, or is not a job's."""
        stored = (await self.pipeline.incidents.get_statuses([incident])).get(incident)
        held = await self._still_held([stored.status]) if stored is not None else []
        if not held:
            raise Conflict("it is not a failure of a job that waits for a person")
        await self._decide(held, {incident: finding})

    async def _still_held(self, statuses: Sequence[IncidentStatus]) -> list[_Held]:
        """The failures of our jobs among them that wait for a person and not for an approval."""
        wanted = {
            status.id: status
            for status in statuses
            if status.state is IncidentState.HELD and is_job_failure(status) and not asks_approval(status)
        }
        if not wanted:
            return []
        quarantine, troubled = self.pipeline.quarantine, self.pipeline.troubled
        known = await quarantine.readable(self.pipeline.incidents.get_incidents, list(wanted), troubled)
        jobs = await quarantine.readable(
            self.pipeline.store.get, sorted({status.job for status in wanted.values()}), troubled
        )
        return [
            _Held(status, as_judged(known[name], status), jobs[status.job].document)
            for name, status in wanted.items()
            if name in known
            and status.job in jobs
            and is_about(known[name], jobs[status.job].document)
            and not needs_person(jobs[status.job].document)
        ]

    async def _judge(self, held: Sequence[_Held], taught: TaughtPattern) -> Sequence[str]:
        pattern = taught.pattern()
        matching = [
            failure
            for failure in held
            if pattern.match(PreparedEvidence(read_evidence(context_part(failure.incident, "evidence")))) is not None
        ]
        return await self._decide(matching, {}) if matching else ()

    async def _decide(self, held: Sequence[_Held], given: Mapping[str, CauseFinding]) -> Sequence[str]:
        """Decide anew on those that get another cause, the given one or the one that the patterns find now; returns their new fingerprints."""
        await self.pipeline.decider.get_ready()
        past = await self.pipeline.detector.history.before([document for _, _, document in held])
        again: list[tuple[_Held, FailedAttempt, Decision]] = []
        for status, incident, document in held:
            try:
                failed = await self._detected(_Held(status, incident, document), past, given.get(status.id))
            except Transient:
                raise
            except Exception as error:
                why = f"{type(error).__name__}: {error}; it stays as it is"
                self.pipeline.quarantine.report(f"incident {status.id}", why, self.pipeline.troubled)
                continue
            if failed.incident.cause == status.cause and failed.finding.pattern == deciding_pattern(incident):
                continue
            decision = await self.pipeline.decider.decide_failure(failed, self.pipeline.clock.now(), n=status.n + 1)
            judged = {"judged_again": {"cause": failed.incident.cause, "pattern": failed.finding.pattern}}
            decision = replace(decision, detail={**decision.detail, **judged})
            again.append((_Held(status, incident, document), failed, decision))
        if not again:
            return ()
        agreed = await self.pipeline.log.agree([decision for _, _, decision in again])
        pendings = [
            await self.pipeline.pending_failure(
                failed.incident, judged_again(held.status, failed.incident), decision, held.document
            )
            for (held, failed, _), decision in zip(again, agreed, strict=True)
        ]
        await self.pipeline.act(pendings)
        await self._relabel({held.status.id: failed.incident for held, failed, _ in again})
        return [pending.status.fingerprint for pending in pendings]

    async def _detected(self, held: _Held, past: PastFailures, given: CauseFinding | None) -> FailedAttempt:
        log = str(context_part(held.incident, "evidence").get("log_tail") or "")
        failed = await self.pipeline.detector.detect(held.document, log, past, self.pipeline.clock.now())
        if given is not None:
            finding = with_verdict(given, failed.evidence)
            context = {**failed.incident.context, "finding": finding_to_json(finding)}
            corrected = replace(failed.incident, cause=finding.cause.value, context=context)
            failed = failed._replace(finding=finding, incident=corrected)
        # The time of the failure does not change.
        return failed._replace(incident=replace(failed.incident, at=held.incident.at))

    async def _relabel(self, incidents: Mapping[str, Incident]) -> None:
        """Write the new causes, which are only for people: where a write fails, the old cause remains visible."""
        left = dict(incidents)
        for _ in range(TRIES):
            stored = await self.pipeline.incidents.get_statuses(list(left))
            wanted = [(judged_again(known.status, left[name]), known.version) for name, known in stored.items()]
            results = await self.pipeline.incidents.put_statuses(wanted) if wanted else ()
            for (status, _), result in zip(wanted, results, strict=True):
                if isinstance(result, Written):
                    del left[status.id]
            if not left:
                return
