"""Acts on failures that were decided, many at once: what makes load asks the safeguards first, and what they refuse is put off or held, never lost.

Retries of the default policy ask as rules do. For a batch of failures in calm times that is one read of documents and one write, in which the failures are counted for storms as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.default_policy import NEVER, DefaultAction
from forestay.domain.exceptions.incidents.incident import CLOSED, IncidentState, IncidentStatus
from forestay.domain.exceptions.safeguards.audit import AuditNote
from forestay.domain.exceptions.safeguards.safeguards import ActionGranted, ActionRequest, Chain, Safeguard
from forestay.domain.exceptions.safeguards.safeguards import ActionRefused as Blocked
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.playbooks.playbook import WhenRefused, actions_of, is_of_job, is_one_write, refusal_of
from forestay.domain.playbooks.playbook_run import PlaybookRunState, StepState
from forestay.ports.clock import Clock
from forestay.ports.errors import Transient
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.exceptions.playbook_engine import PlaybookEngine
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner
from forestay.services.exceptions.act.single_step_runner import SingleStep, SingleStepRunner
from forestay.services.exceptions.detect.pending_failure import PendingFailure
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.exceptions.record.incident_settlement import NOTE_KEPT
from forestay.services.exceptions.safeguards.action_limits import ActionLimits
from forestay.services.exceptions.safeguards.approvals import Approvals
from forestay.services.exceptions.safeguards.chain_counter import ChainCounter
from forestay.services.shared.checked_writer import WriteApplied, Writer

AT_ONCE = 20
"""Playbooks of several steps that are begun at the same time."""
_STATES = {
    DefaultAction.RETRY: IncidentState.COMPLETE,
    DefaultAction.HOLD: IncidentState.HELD,
    DefaultAction.FAIL: IncidentState.FAILED,
}


@dataclass(slots=True)
class FailureActions:
    """The service."""

    incidents: IncidentStore
    writer: Writer
    clock: Clock
    playbooks: PlaybookRunner | None = None
    engine: PlaybookEngine | None = None
    """Where playbooks of several steps live; None: this domain runs no runs."""
    safeguards: ActionLimits | None = None
    audit: AuditLog | None = None
    chains: ChainCounter | None = None
    """Counts what rules did before; None: nothing is counted."""
    approvals: Approvals | None = None
    """Where An approval is requested; None: what needs one is held."""

    async def act(self, failures: Sequence[PendingFailure], *, new: Sequence[PendingFailure] = ()) -> int:
        """Do what was decided as far as the safeguards allow; how many were dealt with. `new`: those that were never counted for storms."""
        answers = await self._permit([failure for failure in failures if failure.acts], new)
        refused = [(failure, answer) for failure in failures if isinstance(answer := answers.get(failure.id), Blocked)]
        free = [failure for failure in failures if not isinstance(answers.get(failure.id), Blocked)]
        await self._put_off(refused)
        settled = await self._answer([failure for failure in free if not failure.by_rule])
        await self._carry_out([failure for failure in free if failure.by_rule])
        return settled + len(refused) + sum(1 for failure in free if failure.by_rule)

    # -- safeguards ------------------------------------------------------------------------------------------------

    async def _permit(self, failures: Sequence[PendingFailure], new: Sequence[PendingFailure]) -> Mapping[str, object]:
        if self.safeguards is None or not (failures or new):
            return {}
        chains: Mapping[str, Chain] = {}
        if self.chains is not None:
            chains = await self.chains.count(
                [failure for failure in failures if failure.by_rule], self.safeguards.policy
            )
        requests = [failure.request(chains.get(failure.id, Chain())) for failure in failures]
        if self.approvals is not None:
            requests = [await self.approvals.given_to(request) for request in requests]
        noticed = [(failure.status.tenant, failure.sign) for failure in new]
        permits = await self.safeguards.permit(requests, noticed)
        await self._ask(zip(failures, requests, permits, strict=True))
        return {failure.id: answer for failure, answer in zip(failures, permits, strict=True)}

    async def _ask(self, asked: Iterable[tuple[PendingFailure, ActionRequest, ActionGranted | Blocked]]) -> None:
        """What needs approval waits for one: a request each, and for a storm's group and rule one at a time."""
        if self.approvals is None:
            return
        groups = set[tuple[str, str]]()
        for failure, request, permit in asked:
            if not isinstance(permit, Blocked) or permit.safeguard is not Safeguard.APPROVAL:
                continue
            group = (permit.group, request.rule)
            if permit.group and group in groups:
                continue
            groups.add(group)
            acts = ", ".join(actions_of(failure.playbook.steps))
            await self.approvals.ask_for(request, failure.decision, acts, job=request.job)

    async def _put_off(self, failures: Sequence[tuple[PendingFailure, Blocked | None]]) -> None:
        """They are not done now: later by themselves, or when a person has looked. First where they stand, for people: one that is held must be seen."""
        if not failures:
            return
        states = {
            failure.id: (
                IncidentState.WAITING if refused is not None and refused.again is not None else IncidentState.HELD,
                "this domain does not support it" if refused is None else refused.words,
                None if refused is None else refused.again,
                "" if refused is None else refused.group,
            )
            for failure, refused in failures
        }

        def move(failure: PendingFailure, known: IncidentStatus, now: int) -> IncidentStatus:
            state, words, due, group = states[failure.id]
            group = group or known.group
            return known.moved(state, now=now, due=due, n=failure.decision.n, note=words, group=group)

        await self._move([failure for failure, _ in failures], move)
        now = self.clock.now()
        waits = [
            (failure, NEVER if refused is None or refused.again is None else refused.again)
            for failure, refused in failures
        ]
        await self.writer.write([failure.parked(until, now) for failure, until in waits])
        await self._wake_late(
            [
                (failure, refused.group)
                for failure, refused in failures
                if refused is not None and refused.again is None and refused.group
            ]
        )

    async def hold(self, run: PendingFailure, why: str) -> None:
        """Hold a failure for a person; it is not due any more."""

        def move(failure: PendingFailure, known: IncidentStatus, now: int) -> IncidentStatus:
            return known.moved(IncidentState.HELD, now=now, n=failure.decision.n, note=why[:NOTE_KEPT])

        await self._move([run], move)
        await self.writer.write([run.parked(NEVER, self.clock.now())])

    async def _wake_late(self, failures: Sequence[tuple[PendingFailure, str]]) -> None:
        """Somebody may have let the group through between the safeguards' word and ours, and did not find these among the held: nobody would wake them."""
        if self.safeguards is None or not failures:
            return
        tenants = {failure.status.tenant for failure, _ in failures}
        held = {group.id for tenant in tenants for group in await self.safeguards.storms.groups(tenant) if group.held}
        await self.make_due([failure for failure, group in failures if group not in held])

    async def make_due(self, failures: Sequence[PendingFailure]) -> None:
        """What was put off is to be looked at again now."""
        if not failures:
            return
        now = self.clock.now()
        await self._move(failures, lambda _, known, now: known.moved(IncidentState.WAITING, now=now, due=now))
        await self.writer.write([failure.parked(now, now) for failure in failures])

    # -- the default policy ---------------------------------------------------------------------------------------------

    async def _answer(self, failures: Sequence[PendingFailure]) -> int:
        """What the default policy says, each one write on the job."""
        if not failures:
            return 0
        now = self.clock.now()
        answers = await self.writer.write([failure.proposed_write(now) for failure in failures])
        done = [
            failure
            for failure, answer in zip(failures, answers, strict=True)
            if isinstance(answer, WriteApplied | TransitionRefused)
        ]

        def move(failure: PendingFailure, known: IncidentStatus, now: int) -> IncidentStatus:
            answer = failure.default_answer
            return known.moved(_STATES[answer.course], now=now, n=failure.decision.n, note=answer.words)

        # Only for people: what was lost of it costs nothing but a line in a list.
        await self._move(done, move)
        return len(done)

    # -- rules -------------------------------------------------------------------------------------------------

    async def _carry_out(self, failures: Sequence[PendingFailure]) -> None:
        """Carry out what rules concluded; each step takes place once, whoever repeats this."""
        await self._write_down(failures)  # first the entry, then the act
        single, several, none = list[PendingFailure](), list[PendingFailure](), list[PendingFailure]()
        chained = list[PendingFailure]()
        for failure in failures:
            if self.playbooks is not None and is_one_write(failure.playbook, of_run=bool(failure.status.run)):
                single.append(failure)
            elif self.playbooks is not None and self.engine is None and is_of_job(failure.playbook):
                chained.append(failure)
            else:
                (none if self.playbooks is None or self.engine is None else several).append(failure)
        await self._put_off([(failure, None) for failure in none])
        await self._at_once(single)
        for failure in chained:
            await self._in_order(failure)
        for start in range(0, len(several), AT_ONCE):
            await asyncio.gather(*(self._begin(failure) for failure in several[start : start + AT_ONCE]))
        if several:
            now = self.clock.now()
            await self.writer.write([failure.parked(NEVER, now) for failure in several])

    async def _write_down(self, failures: Sequence[PendingFailure]) -> None:
        if self.audit is None:
            return
        notes: dict[str, list[AuditNote]] = {}
        for failure in failures:
            known = failure.status
            acts = {
                "incident": failure.id,
                "n": failure.decision.n,
                "owner": known.owner,
                "acts": list(actions_of(failure.playbook.steps)),
            }
            why = str(failure.decision.detail.get("words", ""))
            notes.setdefault(known.tenant, []).append(AuditNote(failure.decision.by, "rule.act", known.job, why, acts))
        for tenant, some in notes.items():
            await self.audit.write(tenant, some)

    async def _at_once(self, failures: Sequence[PendingFailure]) -> None:
        if not failures or self.playbooks is None:
            return
        missing = [failure.id for failure in failures if failure.incident is None]
        read = await self.incidents.get_incidents(missing) if missing else {}
        asked = []
        for failure in failures:
            incident = failure.incident or read.get(failure.id)
            if incident is None:
                raise Transient("an incident could not be read back")
            asked.append(SingleStep(incident, failure.decision.n, failure.playbook))
        ends = await SingleStepRunner(self.playbooks).run(asked)
        failed = [failure for failure, end in zip(failures, ends, strict=True) if end.state is not StepState.DONE]
        if failed:
            now = self.clock.now()
            await self.writer.write([failure.parked(NEVER, now) for failure in failed])

    async def _in_order(self, failure: PendingFailure) -> None:
        """Do steps that are about the job alone one after the other: a domain that runs no runs has nobody else for it. A repeat finds what is done."""
        assert self.playbooks is not None  # noqa: S101 - the caller looked
        n, state, words = failure.decision.n, PlaybookRunState.COMPLETE, ""
        for place, step in enumerate(failure.playbook.steps):
            end = await self.playbooks.do_step(failure.id, n, place)
            words = end.detail
            if end.state is not StepState.DONE and refusal_of(step) is WhenRefused.STOP:
                state = PlaybookRunState.FAILED
                break
        await self.playbooks.finish(failure.id, n, state, reason=words)
        if state is PlaybookRunState.FAILED:
            await self.writer.write([failure.parked(NEVER, self.clock.now())])

    async def _begin(self, failure: PendingFailure) -> None:
        assert self.engine is not None  # noqa: S101 - the caller looked
        words = ", ".join(actions_of(failure.playbook.steps))

        def move(pending_failure: PendingFailure, known: IncidentStatus, now: int) -> IncidentStatus:
            if known.state is IncidentState.HELD and known.n >= pending_failure.decision.n:
                return known  # it has come to its end already, and was kept for a person
            return known.moved(IncidentState.ACTING, now=now, n=pending_failure.decision.n, note=words)

        # Noted first: a playbook that is quickly over says itself where the incident stands then.
        await self._move([failure], move)
        await self.engine.start_playbook(
            failure.id, failure.decision.n, tenant=failure.status.tenant, owner=failure.status.owner
        )

    async def _move(
        self, failures: Sequence[PendingFailure], move: Callable[[PendingFailure, IncidentStatus, int], IncidentStatus]
    ) -> None:
        if not failures:
            return
        stored, now = await self.incidents.get_statuses([failure.id for failure in failures]), self.clock.now()
        changes = []
        for failure in failures:
            known = stored.get(failure.id)
            if known is not None and known.status.state not in CLOSED:
                moved = move(failure, known.status, now)
                if moved is not known.status:
                    changes.append((moved, known.version))
        if changes:
            await self.incidents.put_statuses(changes)
