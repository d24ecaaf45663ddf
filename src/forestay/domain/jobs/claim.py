"""Which pilot holds a job for an attempt, and how that claim ends.

Nothing here writes: each function returns the new document. Only a version-checked write that the
store has acknowledged makes it effective; `confirm` is written when the store's answer was unclear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from forestay.domain.jobs.checkpoint import continued, progress, saved, words_of
from forestay.domain.jobs.claim_access import NEVER_HELD, claim_note, held_by, may_have
from forestay.domain.jobs.job_document import (
    EFFECTS,
    FORMER_PILOT,
    PILOT_DEATHS,
    WRITER,
    AttemptOutcome,
    AttemptResult,
    Claim,
    JobDocument,
    JobPhase,
    Manifest,
    State,
)
from forestay.domain.jobs.lifecycle import Event, TransitionRefused, allowed, step
from forestay.domain.jobs.specification import WhenExhausted

MAX_RELEASES = 8
"""How many claims may be lost before the job itself is suspected of killing its pilots."""
NOT_STARTED = "not-started"
"""The end reason with which a pilot returns a job that it never began, for example when it drains."""
MAX_PILOT_DEATHS = 3
"""How many pilots may die while they run a job before it waits for a person. From the first on it is kept apart from other suspects."""
SUSPECTED = "it is suspected of killing them"
PILOT_STOPPED = "pilot-stopped"
"""The reason of an end by which a pilot tells that it stopped the payload because it had to go itself."""
WALL_LIMIT = "wall-limit"
"""The reason of an end by which a pilot tells that the payload used all of its own time."""


def claimable(document: JobDocument, now: int) -> bool:
    """Whether anyone may claim the job now."""
    return (
        document.state is State.AVAILABLE
        and not document.holders
        and document.not_before <= now
        and allowed(document, Event.CLAIM)
    )


AVOIDED = "avoided"
"""The field of a document for the hosts that its job avoids: name, and until when."""


def avoids(document: JobDocument, host: str, now: int, site: str = "") -> bool:
    """Whether the job avoids a host, or its whole site, at this time."""
    avoided = document.extra.get(AVOIDED)
    return isinstance(avoided, dict) and (avoided.get(host, 0) > now or avoided.get(at_site(site), 0) > now)


def at_site(site: str) -> str:
    """The name of a whole site among the avoided hosts; host names have no colon."""
    return f"site:{site}"


def claim(
    document: JobDocument, *, claim_id: str, pilot: str, host: str, now: int, owner: str = ""
) -> JobDocument | TransitionRefused:
    """Give the job to a pilot for its next attempt; `owner` is the one for whom the pilot was enrolled, if it was."""
    if not may_have(document, owner):
        return TransitionRefused("the pilot runs the jobs of another owner")
    if not claimable(document, now):
        return TransitionRefused(f"the job is {document.state}{' and held' if document.holders else ''}")
    source = f", from {words_of(document.checkpoint, now)}" if document.checkpoint is not None else ""
    return step(
        document,
        Event.CLAIM,
        now=now,
        by=pilot,
        note=f"{claim_note(claim_id)}on {host}{source}",
        attempt=document.attempt + 1,
        phase=JobPhase.STAGING_IN if document.stages else JobPhase.EXECUTING,
        claim=Claim(id=claim_id, pilot=pilot, host=host, granted=now),
        former_claim=None,
    )


def not_held(document: JobDocument, claim_id: str, pilot: str) -> TransitionRefused:
    """The refusal for a pilot that does not hold a claim now; it says whether the claim was ever the pilot's."""
    if held_by(document, claim_id, pilot) is False:
        return NEVER_HELD
    return TransitionRefused("this pilot no longer holds the claim")


def begin(document: JobDocument, *, claim_id: str, now: int, by: str) -> JobDocument | TransitionRefused:
    """The pilot has staged the inputs and starts the job."""
    held = document.claim
    if held is None or held.id != claim_id or held.pilot != by or not allowed(document, Event.BEGIN):
        return not_held(document, claim_id, by)
    if document.phase is not JobPhase.STAGING_IN:
        return document
    return step(document, Event.BEGIN, now=now, by=by, phase=JobPhase.EXECUTING)


def confirm(document: JobDocument) -> JobDocument:
    """The same document once more: its acknowledged write proves that what was read is current."""
    return document.having(confirmations=document.confirmations + 1)


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A checkpoint as the pilot that committed its files reports it."""

    manifest: Manifest
    content: str
    number: int


def save_checkpoint(
    document: JobDocument, report: CheckpointReport, *, claim_id: str, now: int, by: str
) -> JobDocument | TransitionRefused:
    """Make a checkpoint the one that the next attempt begins with. Only who holds the job may."""
    held = document.claim
    if document.state is not State.RUNNING or held is None or held.id != claim_id or held.pilot != by:
        return not_held(document, claim_id, by)
    if document.min_writer > WRITER:
        return TransitionRefused("the document needs a newer release")
    return saved(document, held, report.manifest, report.content, report.number, now)


FailureAnswer = Callable[[JobDocument, int], JobDocument]
"""Returns what a faulted document becomes at a time, in the same write."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The completion counts; the document says so once it is written."""

    document: JobDocument


@dataclass(frozen=True, slots=True)
class Repeated:
    """The document already carries this very end: a confirming write makes sure."""

    document: JobDocument


@dataclass(frozen=True, slots=True)
class Superseded:
    """A newer claim or a final state exists: the completion is kept as evidence and not applied."""

    reason: str


def end(
    document: JobDocument,
    ending: AttemptResult,
    *,
    now: int,
    by: str,
    answer: FailureAnswer | None = None,
    checkpoint: CheckpointReport | None = None,
    heir: bool = True,
) -> Applied | Repeated | Superseded:
    """What the end of an attempt means for its job. A failure is answered at once, by its retry policy unless something else is named.

    ``checkpoint``: what it committed last, for the next attempt. ``heir``: whether the one that reports it may deliver what another pilot left.
    """
    carried = (document.last, document.held_completion)
    recorded = next((result for result in carried if result is not None and result.claim == ending.claim), None)
    if recorded is not None:
        if _agree(recorded, ending):
            return Repeated(document)
        return Superseded(f"its end is recorded already, and says otherwise: {note_of(recorded)}")
    if document.min_writer > WRITER:
        return Superseded("the document needs a newer release")
    if ending.token == document.token:
        if document.claim is not None and document.claim.id == ending.claim:
            if checkpoint is not None:
                report = checkpoint
                document = saved(document, document.claim, report.manifest, report.content, report.number, now)
            return Applied(_settle(document, ending, now=now, by=by, answer=answer))
        late = document.former_claim == ending.claim and ending.outcome is AttemptOutcome.OK
        if late and not heir and document.extra.get(FORMER_PILOT) != by:
            return Superseded("another pilot held this claim")
        if late and document.state in (State.AVAILABLE, State.FAULTED):
            return Applied(_adopt(document, ending, now=now, by=by))
    if document.final:
        return Superseded(f"the job is {document.state}")
    return Superseded(f"claim {ending.claim} no longer holds the job (now attempt {document.attempt})")


def _agree(recorded: AttemptResult, ending: AttemptResult) -> bool:
    """Whether two ends of one claim agree about the job. Times and counters may differ: another process may have measured them."""
    return (recorded.outcome, recorded.exit_code, recorded.signal, recorded.manifest) == (
        ending.outcome,
        ending.exit_code,
        ending.signal,
        ending.manifest,
    )


def release(
    document: JobDocument,
    *,
    claim_id: str,
    now: int,
    by: str,
    reason: str,
    overlap_possible: bool,
    executed: bool = True,
    died: bool = False,
) -> JobDocument | TransitionRefused:
    """Release a claim, so that the job can be claimed again; the attempt stays used.

    ``executed``: whether it may have begun. False if its pilot certainly did not begin it, or a person takes responsibility.
    ``died``: its pilot died while running it and others lived.
    """
    held = document.claim
    if document.state is not State.RUNNING or held is None or held.id != claim_id:
        return TransitionRefused(f"claim {claim_id} does not hold the job (state {document.state})")
    if document.held_completion is not None:
        return TransitionRefused("the attempt has finished; its completion is kept until the job is continued")
    deaths = pilot_deaths(document) + 1
    words = f"; {deaths} pilots died while they ran it" if died and deaths > 1 else ""
    words += f"; attempt {document.attempt} may still be running" if overlap_possible else ""
    extra = {**document.extra, FORMER_PILOT: held.pilot} | ({PILOT_DEATHS: deaths} if died else {})
    return _lose(
        document.having(extra=extra),
        now=now,
        by=by,
        note=f"{reason}{words}",
        claim=claim_id,
        executed=executed,
        former_claim=claim_id,
        overlap_possible=document.overlap_possible or overlap_possible,
    )


def _lose(
    document: JobDocument, *, now: int, by: str, note: str, claim: str, executed: bool, **changes: Any
) -> JobDocument:
    """The job was lost with its pilot: it becomes available again, unless that has happened too often or would repeat external effects."""
    releases = document.releases + 1
    why = ""
    if executed and has_external_effects(document):
        why = "it has external effects, and what it did before is not known"
    elif progress(document) is not None:
        return _continue(document, now=now, by=by, note=note, claim=claim, **changes)
    elif pilot_deaths(document) >= MAX_PILOT_DEATHS:
        why = SUSPECTED
    elif releases >= MAX_RELEASES:
        why = f"{releases} claims were lost"
    return step(
        document,
        Event.QUARANTINE if why else Event.RELEASE,
        now=now,
        by=by,
        note=f"{note}; {why}; claim {claim}" if why else f"{note}; claim {claim}",
        claim=None,
        phase=None,
        releases=releases,
        **changes,
    )


def _continue(document: JobDocument, *, now: int, by: str, note: str, claim: str, **changes: Any) -> JobDocument:
    """The attempt got on before it ended: the next one continues, and whatever was lost before is forgotten."""
    checkpoint = progress(document)
    assert checkpoint is not None  # noqa: S101 - the caller looked
    extra = {name: value for name, value in document.extra.items() if name != PILOT_DEATHS}
    return step(
        document,
        Event.RELEASE,
        now=now,
        by=by,
        note=f"{note}; to be continued from {words_of(checkpoint)}; claim {claim}",
        claim=None,
        phase=None,
        releases=0,
        checkpoint=continued(checkpoint),
        extra=extra,
        **changes,
    )


def has_external_effects(document: JobDocument) -> bool:
    """Whether a further attempt would repeat effects that Forestay does not publish itself."""
    return bool(document.extra) and EFFECTS in document.extra


def pilot_deaths(document: JobDocument) -> int:
    """How many pilots died in a row while they ran it."""
    deaths = document.extra.get(PILOT_DEATHS) if document.extra else None
    return deaths if isinstance(deaths, int) else 0


def blamed(jobs: Sequence[JobDocument]) -> frozenset[str]:
    """The jobs of a dead pilot that may have killed it: those that already had a pilot die, or else all of them."""
    suspects = [document for document in jobs if pilot_deaths(document)]
    return frozenset(document.id for document in suspects or jobs)


def needs_person(document: JobDocument) -> str:
    """Why only a person may release a faulted job to run again; empty if a rule or a policy may."""
    deaths = pilot_deaths(document)
    if deaths >= MAX_PILOT_DEATHS:
        return f"{deaths} pilots died while they ran the job; it may have killed them"
    if has_external_effects(document) and _was_stopped(document):
        return f"attempt {document.attempt} was stopped after its start and has external effects; check what it did"
    return ""


_BEFORE_THE_START = frozenset(
    {NOT_STARTED, "data-missing", "data-corrupt", "transfer", "image-failed", "secret-failed"}
)
_PARTS_OF_A_START = frozenset({"program", "folder", "process"})
_KILLED = (137, 143)
"""The exit codes of a shell whose child was ended by SIGKILL or SIGTERM."""


def _was_stopped(document: JobDocument) -> bool:
    """Whether the last attempt began and did not end by itself with an exit code that says so."""
    last = document.last
    if last is None or last.token != document.token:
        return True  # its end was not reported
    if last.reason in _BEFORE_THE_START or last.stage == JobPhase.STAGING_IN:
        return False
    if last.reason == "start-failed":
        return last.file not in _PARTS_OF_A_START and last.stage is not None
    return last.reason != "exit" or last.exit_code in _KILLED


def apply_held_completion(
    document: JobDocument, *, now: int, by: str, answer: FailureAnswer | None = None
) -> JobDocument:
    """Apply the end that was kept while the job was held; called when the last holder has released it."""
    ending = document.held_completion
    if ending is None:
        return document
    return _settle(document.having(held_completion=None), ending, now=now, by=by, answer=answer)


def note_of(ending: AttemptResult) -> str:
    """The end in a few words."""
    reason = ending.reason
    if ending.signal is not None:
        reason = f"signal {ending.signal}" if ending.reason == "signal" else f"{ending.reason}, signal {ending.signal}"
    elif ending.exit_code is not None:
        reason = f"exit {ending.exit_code}" if ending.reason == "exit" else f"{ending.reason}, exit {ending.exit_code}"
    left = f"; {ending.left_running} of its processes may still be running" if ending.left_running else ""
    return f"{reason}{left}; claim {ending.claim}"


def _settle(
    document: JobDocument, ending: AttemptResult, *, now: int, by: str, answer: FailureAnswer | None = None
) -> JobDocument:
    note = note_of(ending)
    if ending.left_running:
        document = document.having(overlap_possible=True)
    if document.holders:
        return step(
            document, Event.KEEP_COMPLETION, now=now, by=by, note=note, claim=None, phase=None, held_completion=ending
        )
    if ending.outcome is AttemptOutcome.OK:
        return step(
            document, Event.COMPLETE, now=now, by=by, note=note,
            claim=None, phase=None, last=ending, winner=ending,
        )  # fmt: skip
    if ending.reason == NOT_STARTED:
        # Nothing was tried, so it counts neither as an attempt of the owner's policy nor against the job.
        return step(document, Event.RELEASE, now=now, by=by, note=note, claim=None, phase=None, last=ending)
    continues = ending.reason == WALL_LIMIT and progress(document) is not None and not has_external_effects(document)
    if ending.reason == PILOT_STOPPED or continues:
        # The pilot had to go and took the payload along, or the next attempt gets on from here: no failure of the job.
        words, _, _ = note.rpartition("; claim ")
        return _lose(document, now=now, by=by, note=words, claim=ending.claim, executed=True, last=ending)
    faulted = step(
        document, Event.FAILURE, now=now, by=by, note=note,
        claim=None, phase=None, last=ending, failures=document.failures + 1,
    )  # fmt: skip
    return by_retry_policy(faulted, now) if answer is None else answer(faulted, now)


def leave_failure(document: JobDocument, now: int) -> JobDocument:
    """The failure waits for the failure handlers, and is due now."""
    return document.having(not_before=now)


class PolicySays(NamedTuple):
    """The answer of a job's own retry policy to its failure."""

    event: Event | None
    """None: it waits for someone."""
    words: str
    wait: int = 0
    """Seconds."""


def retry_policy(document: JobDocument) -> PolicySays:
    """Retry while attempts are left, then fail or wait for a person."""
    policy = document.retry
    return said_by_policy(
        document.failures, policy.max_attempts, wait=policy.wait, hold=policy.when_exhausted is WhenExhausted.HOLD
    )


def said_by_policy(failures: int, max_attempts: int, *, wait: int = 0, hold: bool = False) -> PolicySays:
    """The same for a job of which only these numbers are known."""
    if failures < max_attempts:
        return PolicySays(Event.RETRY, f"attempt {failures + 1} of {max_attempts}", wait * (1 << min(failures - 1, 20)))
    return PolicySays(None if hold else Event.GIVE_UP, f"{failures} of {max_attempts} attempts used")


def by_retry_policy(document: JobDocument, now: int) -> JobDocument:
    """The faulted document after its own policy was applied."""
    event, words, wait = retry_policy(document)
    if event is None or needs_person(document):
        return document
    later = {"not_before": now + 1000 * wait} if event is Event.RETRY else {}
    return step(document, event, now=now, by="default policy", note=words, **later)


def _adopt(document: JobDocument, ending: AttemptResult, *, now: int, by: str) -> JobDocument:
    note = f"late completion accepted; claim {ending.claim}"
    if document.holders:
        return step(
            document, Event.KEEP_COMPLETION, now=now, by=by, note=note, former_claim=None, held_completion=ending
        )
    return step(document, Event.ADOPT, now=now, by=by, note=note, former_claim=None, last=ending, winner=ending)
