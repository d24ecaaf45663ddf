"""Playbook actions on a job: each step is one version-checked write to its document, and is applied once.

The line that a step writes into the job's story carries the step's id. So a repeat, by any process and however late, finds the line and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from forestay.domain.data.remake import wait_for_remake
from forestay.domain.data.staging_terms import RESTAGED, TRANSFER, restaged, transfer_of
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.exceptions.incidents.retry_policy import (
    DEFAULT_POLICY,
    RETRIES,
    AfterLastLevel,
    Budgets,
    Ledger,
    LevelledRetryPolicy,
    RetriesExhausted,
    entered,
    next_try,
    retries_told,
    with_told,
)
from forestay.domain.jobs import steering
from forestay.domain.jobs.claim import AVOIDED, at_site, has_external_effects, release
from forestay.domain.jobs.conversation import AWAITED, SILENT
from forestay.domain.jobs.job_document import ANY_DOWNSTREAM, DOWNSTREAM, Delivery, JobDocument, State
from forestay.domain.jobs.job_flow_pattern import JobFlowPattern
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.resources import Resources
from forestay.domain.playbooks.action import (
    Action,
    ActionKind,
    Amount,
    AvoidHost,
    AvoidScope,
    FreeSpace,
    Hold,
    NeedChange,
    Remake,
    Repoll,
    Reregister,
    ReserveSpace,
    Restage,
    Restaging,
    Resubmission,
    Resubmit,
    RetryByPolicy,
    Steer,
)
from forestay.ports.clock import Clock
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import JobStore
from forestay.services.jobs.job_control import JobControl
from forestay.services.shared.checked_writer import (
    Answer,
    JobMissing,
    ProposedWrite,
    WriteApplied,
    Writer,
    WriteUnsettled,
)

MAX_AVOIDED = 32
_AWAITED_BY: Mapping[ActionKind, JobFlowPattern] = {
    ActionKind.REPOLL: JobFlowPattern.POLLING,
    ActionKind.REREGISTER: JobFlowPattern.NOTIFICATION,
}
REGISTERED = "registered"
"""Note of a step: who is registered for the completion of the job, which the document alone does not say."""
SITE = "site"
"""Note of a step: the site to avoid, which only the pilots' documents tell."""
WAITS_FOR = "waits_for"
"""Note of a step: the holder that keeps the job until its lost input was made again; empty: it was already."""
WORDS = "words"
"""Note of a step: the text for the job's story."""


class ActionOutcome(NamedTuple):
    """The outcome of a step."""

    done: bool
    detail: str = ""


class JobAction(NamedTuple):
    """A step to apply to the job of an incident."""

    incident: Incident
    action: Action
    step: str
    release_of: str = ""
    notes: Mapping[str, object] = {}
    """Further notes for the job's document."""

    @property
    def by(self) -> str:
        return f"playbook:{self.step}"


async def job_of(store: JobStore, incident: Incident) -> JobDocument | ActionOutcome:
    """The job that an exception concerns, or the outcome that there is none to act on."""
    if not incident.job:
        return ActionOutcome(done=False, detail="the exception does not concern a job")
    stored = (await store.get([incident.job])).get(incident.job)
    if stored is None or stored.document.tenant != incident.tenant:
        return ActionOutcome(done=False, detail="there is no such job")
    return stored.document


@dataclass(slots=True)
class JobActions:
    """The service."""

    writer: Writer
    steer: JobControl
    clock: Clock
    retry_policies: Mapping[str, LevelledRetryPolicy] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)
    exhausted: Callable[[Incident, RetriesExhausted], None] = lambda _incident, _exhausted: None
    """Called when a retry policy is exhausted, for metrics."""

    def can(self, action: Action) -> bool:
        """Whether an action is applied to a job here."""
        match action:
            case Steer() | Hold() | RetryByPolicy() | ReserveSpace() | Repoll():
                return True
            case AvoidHost(scope=scope):
                return scope is AvoidScope.HOST
            case Resubmit(how):
                return how is not Resubmission.OTHER_DOMAIN
            case Restage(how):
                return how in (Restaging.SAME, Restaging.CHANGED)
            case _:
                return False

    async def recover(
        self,
        incident: Incident,
        action: Action,
        *,
        step: str,
        release_of: str = "",
        notes: Mapping[str, object] | None = None,
    ) -> ActionOutcome:
        """Carry out a step on the incident's job. `Transient`: the store gave no clear answer; a repeat is safe."""
        (outcome,) = await self.recover_all([JobAction(incident, action, step, release_of, notes or {})])
        return outcome

    async def recover_all(self, asked: Sequence[JobAction]) -> Sequence[ActionOutcome]:
        """Carry out steps by one write, with an outcome for each. `Transient`: the store gave no clear answer for some; repeating all is safe."""
        now = self.clock.now()
        before: dict[str, JobDocument] = {}
        answers = await self.writer.write([self._proposed(action, now, before) for action in asked])
        outcomes = [self._outcome(action, answer) for action, answer in zip(asked, answers, strict=True)]
        for action, answer in zip(asked, answers, strict=True):
            held = before.get(action.step)
            lost = isinstance(answer, WriteApplied) and answer.stored.document.claim is None
            if lost and held is not None and held.claim is not None:
                await self.steer.order(held, "cancel")
        return outcomes

    def _proposed(self, job_action: JobAction, now: int, before: dict[str, JobDocument]) -> ProposedWrite:
        incident, by = job_action.incident, job_action.by

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            before[job_action.step] = document
            if _bears(document, by):
                return document
            if document.tenant != incident.tenant:
                return TransitionRefused("there is no such job")
            return self._decide(
                incident,
                job_action.action,
                document,
                step=job_action.step,
                by=by,
                now=now,
                release_of=job_action.release_of,
                more=job_action.notes,
            )

        return ProposedWrite(incident.job, decide, lambda document: _bears(document, by))

    def _outcome(self, action: JobAction, answer: Answer) -> ActionOutcome:
        match answer:
            case WriteApplied():
                lines = (line.note for line in answer.stored.document.history if line.by == action.by)
                return ActionOutcome(done=True, detail=next(lines, ""))
            case TransitionRefused(reason):
                return ActionOutcome(done=False, detail=reason)
            case JobMissing():
                return ActionOutcome(done=False, detail="there is no such job")
            case WriteUnsettled(detail):
                raise Transient(f"the store did not confirm the write to job {action.incident.job}: {detail}")

    def _decide(
        self,
        incident: Incident,
        action: Action,
        document: JobDocument,
        *,
        step: str,
        by: str,
        now: int,
        release_of: str,
        more: Mapping[str, object],
    ) -> JobDocument | TransitionRefused:
        reason = f"incident {incident.id}"
        match action:
            case Hold(_, why):
                return steering.hold(document, holder=step, now=now, by=by, reason=why or reason)
            case Steer(kind):
                return self._steered(kind, incident, document, step=step, by=by, now=now, release_of=release_of)
            case AvoidHost(seconds, scope):
                where = (
                    f"site {more[SITE]}" if SITE in more else document.last.host if document.last is not None else ""
                )
                key = at_site(str(more[SITE])) if SITE in more else where
                if not key or (scope is AvoidScope.SITE and SITE not in more):
                    return TransitionRefused("the host of the last attempt is unknown")
                until = now + 1000 * seconds
                return _avoiding(document, key, where, until=until, now=now, by=by, holder=step)
            case Repoll() | Reregister():
                return _awaited(incident, action, document, now=now, by=by, holder=step, notes=more)
        if moved := _moved_on(incident, document):
            return moved
        match action:
            case Resubmit(how, needs, wait, _):
                if how is Resubmission.OTHER_DOMAIN:
                    if _may_run_elsewhere(document):
                        return TransitionRefused(
                            "its task at the first domain may still run, and has external effects; a person must check"
                        )
                    reason = f"in {_destination(more)}; {reason}"
                resources = changed_needs(document.resources, needs)
                if needs and resources == document.resources:
                    return TransitionRefused(_nothing_more(document.resources, needs))
                notes = {**more, RETRIES: entered(_ledger(document, incident), incident.cause).as_plain()}
                return _resent(
                    incident,
                    document,
                    resources,
                    wait=1000 * wait,
                    now=now,
                    by=by,
                    reason=reason,
                    notes=notes,
                    step=step,
                )
            case Restage():
                tries = entered(_ledger(document, incident), incident.cause).as_plain()
                kept = {**staging_notes(document, action), **more, RETRIES: tries}
                return steering.resubmit(document, now=now, by=by, reason=reason, notes=kept)
            case Remake() if WAITS_FOR in more:
                words = f"{more[WORDS]}; {reason}"
                return wait_for_remake(document, str(more[WAITS_FOR]), now=now, by=by, reason=words)
            case FreeSpace(size):
                return _noted(document, now=now, by=by, holder=step, reason=f"{size} bytes are freed", notes=more)
            case ReserveSpace(size):
                reserved = changed_needs(document.resources, {Amount.DISK: NeedChange(to=size)})
                reason = f"needs {reserved.disk} bytes of disk"
                return _noted(document, now=now, by=by, holder=step, reason=reason, notes=more, resources=reserved)
            case RetryByPolicy(name):
                return self._climb(incident, document, name, step=step, by=by, now=now)
            case _:
                return TransitionRefused(f"{action.action} cannot be applied to a job here")

    def _climb(
        self, incident: Incident, document: JobDocument, name: str, *, step: str, by: str, now: int
    ) -> JobDocument | TransitionRefused:
        retry_policy = (
            self.retry_policies.get(name) if name else self.retry_policies.get(DEFAULT_POLICY.name, DEFAULT_POLICY)
        )
        if retry_policy is None:
            return TransitionRefused(f"there is no retry policy {name!r}")
        ledger = _ledger(document, incident)
        answer = next_try(retry_policy, ledger, incident.cause, self.budgets)
        if not isinstance(answer, RetriesExhausted):
            notes = {RETRIES: entered(ledger, incident.cause).as_plain()}
            words = f"level {answer.level} of retry policy {retry_policy.name}, after {answer.wait} s"
            return _resent(
                incident,
                document,
                document.resources,
                wait=1000 * answer.wait,
                now=now,
                by=by,
                reason=f"{words}; incident {incident.id}",
                notes=notes,
                step=step,
            )
        self.exhausted(incident, answer)
        words = f"{answer.then}: {answer.reason}"
        if answer.then is AfterLastLevel.HOLD:
            return steering.hold(document, holder=step, now=now, by=by, reason=words)
        # The run learns that the job failed, and the flow decides what that means; after `rollback` the playbook's runner tells the run too.
        return steering.force(document, to=State.FAILED, expected=document.token, now=now, by=by, reason=words)

    def _steered(
        self,
        action: ActionKind,
        incident: Incident,
        document: JobDocument,
        *,
        step: str,
        by: str,
        now: int,
        release_of: str,
    ) -> JobDocument | TransitionRefused:
        reason = f"incident {incident.id}"
        match action:
            case ActionKind.SUSPEND:
                return steering.hold(document, holder=step, now=now, by=by, reason=reason)
            case ActionKind.CONTINUE:
                return steering.let_go(document, holder=release_of, now=now, by=by, answer=self.steer.failure_answer)
            case ActionKind.REMOVE:
                return steering.cancel(document, now=now, by=by, reason=reason)
            case ActionKind.FORCE_COMPLETE | ActionKind.FORCE_FAIL:
                state = State.FORCED_COMPLETE if action is ActionKind.FORCE_COMPLETE else State.FAILED
                return steering.force(document, to=state, expected=document.token, now=now, by=by, reason=reason)
            case ActionKind.RESTART:
                if moved := _moved_on(incident, document):
                    return moved
                if document.claim is not None:
                    return release(
                        document, claim_id=document.claim.id, now=now, by=by, reason=reason, overlap_possible=True
                    )
                return steering.retry(document, now=now, by=by, reason=reason)
            case _:
                return TransitionRefused(f"{action} cannot be applied to a job")


def _resent(
    incident: Incident,
    document: JobDocument,
    resources: Resources,
    *,
    wait: int,
    now: int,
    by: str,
    reason: str,
    notes: Mapping[str, object],
    step: str,
) -> JobDocument | TransitionRefused:
    """The job, ready to be claimed again. An exception that is not a failure finds it running or still waiting: it is then recalled first."""
    if incident.kind is ExceptionType.ABORT or document.state is State.FAULTED:
        return steering.resubmit(document, resources=resources, wait=wait, now=now, by=by, reason=reason, notes=notes)
    if document.claim is not None:
        back = release(document, claim_id=document.claim.id, now=now, by=by, reason=reason, overlap_possible=True)
    elif document.state is State.AVAILABLE:
        # A hold that is released at once: the table of states has no transition that only records a note.
        back = steering.hold(document, holder=step, now=now, by=by, reason=reason)
    else:
        return TransitionRefused(f"the job is {document.state}")
    if isinstance(back, TransitionRefused):
        return back
    if back.state is not State.AVAILABLE:
        return TransitionRefused(f"a person must check: {back.history[-1].note}")
    # A recall does not count as a lost claim.
    return back.having(
        holders=document.holders,
        releases=document.releases,
        resources=resources,
        not_before=now + wait,
        extra={**back.extra, **notes},
    )


def _bears(document: JobDocument, by: str) -> bool:
    """Whether the job's story has the line of a step."""
    return any(line.by == by for line in document.history)


def _moved_on(incident: Incident, document: JobDocument) -> TransitionRefused | None:
    """The refusal of an answer to an earlier attempt: it does not apply to the present one."""
    if incident.attempt and document.attempt != incident.attempt:
        return TransitionRefused(f"the job has changed: it is at attempt {document.attempt}, not {incident.attempt}")
    return None


def _avoiding(
    document: JobDocument, key: str, where: str, *, until: int, now: int, by: str, holder: str
) -> JobDocument | TransitionRefused:
    before = cast("Mapping[str, int]", document.extra.get(AVOIDED, {}))
    avoided = {host: end for host, end in before.items() if end > now} | {key: until}
    newest = dict(sorted(avoided.items(), key=lambda pair: pair[1])[-MAX_AVOIDED:])
    reason = f"avoids {where}"
    return _noted(document, now=now, by=by, holder=holder, reason=reason, notes={AVOIDED: newest})


def _noted(
    document: JobDocument,
    *,
    now: int,
    by: str,
    holder: str,
    reason: str,
    notes: Mapping[str, object],
    resources: Resources | None = None,
) -> JobDocument | TransitionRefused:
    """The job with notes that it keeps from now on."""
    # A hold that is released at once: the table of states has no transition that only records a note.
    held = steering.hold(document, holder=holder, now=now, by=by, reason=reason)
    if isinstance(held, TransitionRefused):
        return held
    return held.having(
        holders=document.holders, extra={**document.extra, **notes}, resources=resources or document.resources
    )


def _awaited(
    incident: Incident,
    action: Repoll | Reregister,
    document: JobDocument,
    *,
    now: int,
    by: str,
    holder: str,
    notes: Mapping[str, object],
) -> JobDocument | TransitionRefused:
    """The job, whose next attempt is polled or reported in place of the one that its submitter knows."""
    if document.final:
        return TransitionRefused(f"the job is already {document.state}")
    if document.state is not State.AVAILABLE and document.attempt <= incident.attempt:
        return TransitionRefused(f"the job is {document.state}; it was not resubmitted")
    attempt = document.attempt + (document.state is State.AVAILABLE)
    if isinstance(action, Repoll):
        reason = f"polls are answered for attempt {attempt}"
    else:
        reason = f"registered again for attempt {attempt}: {notes[REGISTERED]}"
    kept = awaited_notes([action.action])
    noted = _noted(document, now=now, by=by, holder=holder, reason=reason, notes=kept)
    if isinstance(noted, TransitionRefused) or noted.delivery is None or isinstance(action, Repoll):
        return noted
    return noted.having(delivery=Delivery(noted.delivery.url))


def awaited_notes(actions: Iterable[ActionKind]) -> dict[str, object]:
    """The notes in a job's document on how these actions await its next attempt.

    The write that resubmits the job includes them: a relay may claim the job before the next step of the playbook begins.
    """
    awaited = [_AWAITED_BY[action].value for action in actions if action in _AWAITED_BY]
    return {AWAITED: awaited[-1]} if awaited else {}


def _destination(notes: Mapping[str, object]) -> str:
    domain = notes.get(DOWNSTREAM)
    return "another domain" if domain == ANY_DOWNSTREAM else f"domain {domain}"


def _may_run_elsewhere(document: JobDocument) -> bool:
    """Whether the outcome of the job's last task is unknown, and a second one could repeat its external effects."""
    return has_external_effects(document) and document.last is not None and document.last.reason == SILENT


def staging_notes(document: JobDocument, do: Restage) -> dict[str, object]:
    """The notes in a job's document on a re-staging: their number, and changed parameters of transfers."""
    notes: dict[str, object] = {RESTAGED: restaged(document.extra) + 1}
    if do.how is Restaging.CHANGED:
        notes_data = {"protocol": do.protocol or None, "piece": do.buffer, "timeout": do.timeout}
        changed = {name: value for name, value in notes_data.items() if value is not None}
        notes[TRANSFER] = {**transfer_of(document.extra), **changed}
    return notes


def changed_needs(resources: Resources, needs: Mapping[Amount, NeedChange]) -> Resources:
    """The resources that a job needs from now on; never less than before."""
    changes: dict[str, int] = {}
    for amount, need in needs.items():
        before: int = getattr(resources, amount.value) or 0
        wanted = need.to if need.to is not None else int(before * (need.factor or 1))
        if need.at_most is not None:
            wanted = min(wanted, need.at_most)
        if wanted > before:
            changes[amount.value] = wanted
    return replace(resources, **changes)


def _nothing_more(resources: Resources, needs: Mapping[Amount, NeedChange]) -> str:
    """Why a change of needs changes nothing."""
    for amount, need in needs.items():
        if need.factor is not None and not getattr(resources, amount.value):
            return f"the job asked for no {amount.value}, so there is nothing to multiply"
    return "the job already has the maximum"


def _ledger(document: JobDocument, incident: Incident) -> Ledger:
    """All retries of a job so far: ours, from its document, and those of other layers as far as the evidence reports them."""
    evidence = incident.context.get("evidence")
    evidences = [evidence] if isinstance(evidence, Mapping) else []
    ours = Ledger.from_plain(cast("list[list[object]]", document.extra.get(RETRIES, [])))
    return with_told(ours, incident.cause, retries_told(*evidences, document.labels))
