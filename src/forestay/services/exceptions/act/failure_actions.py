"""Acts on faults that were decided, many at once: what makes load asks the brakes first, and what they refuse is put off or held, never lost.

The house's own retries ask as rules do. For a batch of faults in calm times that is one read of documents and one write, in which the faults are counted for storms as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.house_policy import NEVER, DefaultAction
from forestay.domain.exceptions.incidents.incident import CLOSED, IncidentState, IncidentStatus
from forestay.domain.exceptions.safeguards.audit import AuditNote
from forestay.domain.exceptions.safeguards.brakes import ActionGranted, ActionRequest, Brake, Chain
from forestay.domain.exceptions.safeguards.brakes import ActionRefused as Braked
from forestay.domain.exlets.exlet import WhenRefused, actions_of, is_of_job, is_one_write, refusal_of
from forestay.domain.exlets.exlet_run import PlaybookRunState, StepState
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.ports.clock import Clock
from forestay.ports.errors import Transient
from forestay.ports.exceptions.exlet_engine import ExletEngine
from forestay.ports.exceptions.incident_store import IncidentStore
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
"""Exlets of several steps that are begun at the same time."""
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
    exlets: PlaybookRunner | None = None
    engine: ExletEngine | None = None
    """Where exlets of several steps live; None: this domain runs no cases."""
    brakes: ActionLimits | None = None
    audit: AuditLog | None = None
    chains: ChainCounter | None = None
    """Counts what rules did before; None: nothing is counted."""
    approvals: Approvals | None = None
    """Where a second person is asked; None: what needs one is held."""

    async def act(self, cases: Sequence[PendingFailure], *, new: Sequence[PendingFailure] = ()) -> int:
        """Do what was decided as far as the brakes allow; how many were dealt with. `new`: those that were never counted for storms."""
        answers = await self._permit([one for one in cases if one.acts], new)
        refused = [(one, said) for one in cases if isinstance(said := answers.get(one.id), Braked)]
        free = [one for one in cases if not isinstance(answers.get(one.id), Braked)]
        await self._put_off(refused)
        settled = await self._answer([one for one in free if not one.by_rule])
        await self._carry_out([one for one in free if one.by_rule])
        return settled + len(refused) + sum(1 for one in free if one.by_rule)

    # -- brakes ------------------------------------------------------------------------------------------------

    async def _permit(self, cases: Sequence[PendingFailure], new: Sequence[PendingFailure]) -> Mapping[str, object]:
        if self.brakes is None or not (cases or new):
            return {}
        chains: Mapping[str, Chain] = {}
        if self.chains is not None:
            chains = await self.chains.count([one for one in cases if one.by_rule], self.brakes.policy)
        requests = [one.request(chains.get(one.id, Chain())) for one in cases]
        if self.approvals is not None:
            requests = [await self.approvals.given_to(one) for one in requests]
        noticed = [(one.standing.tenant, one.sign) for one in new]
        said = await self.brakes.permit(requests, noticed)
        await self._ask(zip(cases, requests, said, strict=True))
        return {one.id: answer for one, answer in zip(cases, said, strict=True)}

    async def _ask(self, asked: Iterable[tuple[PendingFailure, ActionRequest, ActionGranted | Braked]]) -> None:
        """What needs a second person waits for one: a request each, and for a storm's group and rule one at a time."""
        if self.approvals is None:
            return
        groups = set[tuple[str, str]]()
        for one, request, said in asked:
            if not isinstance(said, Braked) or said.brake is not Brake.SECOND_PERSON:
                continue
            group = (said.group, request.rule)
            if said.group and group in groups:
                continue
            groups.add(group)
            acts = ", ".join(actions_of(one.exlet.steps))
            await self.approvals.ask_for(request, one.decision, acts, job=request.job)

    async def _put_off(self, cases: Sequence[tuple[PendingFailure, Braked | None]]) -> None:
        """They are not done now: later by themselves, or when a person has looked. First where they stand, for people: one that is held must be seen."""
        if not cases:
            return
        states = {
            one.id: (
                IncidentState.WAITING if said is not None and said.again is not None else IncidentState.HELD,
                "this domain does not support it" if said is None else said.words,
                None if said is None else said.again,
                "" if said is None else said.group,
            )
            for one, said in cases
        }

        def move(one: PendingFailure, known: IncidentStatus, now: int) -> IncidentStatus:
            state, words, due, group = states[one.id]
            group = group or known.group
            return known.moved(state, now=now, due=due, n=one.decision.n, note=words, group=group)

        await self._move([one for one, _ in cases], move)
        now = self.clock.now()
        waits = [(one, NEVER if said is None or said.again is None else said.again) for one, said in cases]
        await self.writer.write([one.parked(until, now) for one, until in waits])
        await self._wake_late(
            [(one, said.group) for one, said in cases if said is not None and said.again is None and said.group]
        )

    async def hold(self, case: PendingFailure, why: str) -> None:
        """Hold a fault for a person; it is not due any more."""

        def move(one: PendingFailure, known: IncidentStatus, now: int) -> IncidentStatus:
            return known.moved(IncidentState.HELD, now=now, n=one.decision.n, note=why[:NOTE_KEPT])

        await self._move([case], move)
        await self.writer.write([case.parked(NEVER, self.clock.now())])

    async def _wake_late(self, cases: Sequence[tuple[PendingFailure, str]]) -> None:
        """Somebody may have let the group through between the brakes' word and ours, and did not find these among the held: nobody would wake them."""
        if self.brakes is None or not cases:
            return
        tenants = {one.standing.tenant for one, _ in cases}
        held = {group.id for tenant in tenants for group in await self.brakes.storms.groups(tenant) if group.held}
        await self.make_due([one for one, group in cases if group not in held])

    async def make_due(self, cases: Sequence[PendingFailure]) -> None:
        """What was put off is to be looked at again now."""
        if not cases:
            return
        now = self.clock.now()
        await self._move(cases, lambda _, known, now: known.moved(IncidentState.WAITING, now=now, due=now))
        await self.writer.write([one.parked(now, now) for one in cases])

    # -- the house ---------------------------------------------------------------------------------------------

    async def _answer(self, cases: Sequence[PendingFailure]) -> int:
        """What the house says, each one write on the job."""
        if not cases:
            return 0
        now = self.clock.now()
        answers = await self.writer.write([one.proposed_write(now) for one in cases])
        done = [
            one
            for one, answer in zip(cases, answers, strict=True)
            if isinstance(answer, WriteApplied | TransitionRefused)
        ]

        def move(one: PendingFailure, known: IncidentStatus, now: int) -> IncidentStatus:
            answer = one.house
            return known.moved(_STATES[answer.course], now=now, n=one.decision.n, note=answer.words)

        # Only for people: what was lost of it costs nothing but a line in a list.
        await self._move(done, move)
        return len(done)

    # -- rules -------------------------------------------------------------------------------------------------

    async def _carry_out(self, cases: Sequence[PendingFailure]) -> None:
        """Carry out what rules concluded; each step takes place once, whoever repeats this."""
        await self._write_down(cases)  # first the entry, then the act
        single, several, none = list[PendingFailure](), list[PendingFailure](), list[PendingFailure]()
        chained = list[PendingFailure]()
        for one in cases:
            if self.exlets is not None and is_one_write(one.exlet, of_case=bool(one.standing.case)):
                single.append(one)
            elif self.exlets is not None and self.engine is None and is_of_job(one.exlet):
                chained.append(one)
            else:
                (none if self.exlets is None or self.engine is None else several).append(one)
        await self._put_off([(one, None) for one in none])
        await self._at_once(single)
        for one in chained:
            await self._in_order(one)
        for start in range(0, len(several), AT_ONCE):
            await asyncio.gather(*(self._begin(one) for one in several[start : start + AT_ONCE]))
        if several:
            now = self.clock.now()
            await self.writer.write([one.parked(NEVER, now) for one in several])

    async def _write_down(self, cases: Sequence[PendingFailure]) -> None:
        if self.audit is None:
            return
        notes: dict[str, list[AuditNote]] = {}
        for one in cases:
            known = one.standing
            acts = {
                "incident": one.id,
                "n": one.decision.n,
                "owner": known.owner,
                "acts": list(actions_of(one.exlet.steps)),
            }
            why = str(one.decision.detail.get("words", ""))
            notes.setdefault(known.tenant, []).append(AuditNote(one.decision.by, "rule.act", known.job, why, acts))
        for tenant, some in notes.items():
            await self.audit.write(tenant, some)

    async def _at_once(self, cases: Sequence[PendingFailure]) -> None:
        if not cases or self.exlets is None:
            return
        missing = [one.id for one in cases if one.incident is None]
        read = await self.incidents.get_incidents(missing) if missing else {}
        asked = []
        for one in cases:
            incident = one.incident or read.get(one.id)
            if incident is None:
                raise Transient("an incident could not be read back")
            asked.append(SingleStep(incident, one.decision.n, one.exlet))
        ends = await SingleStepRunner(self.exlets).run(asked)
        failed = [one for one, end in zip(cases, ends, strict=True) if end.state is not StepState.DONE]
        if failed:
            now = self.clock.now()
            await self.writer.write([one.parked(NEVER, now) for one in failed])

    async def _in_order(self, one: PendingFailure) -> None:
        """Do steps that are about the job alone one after the other: a domain that runs no cases has nobody else for it. A repeat finds what is done."""
        assert self.exlets is not None  # noqa: S101 - the caller looked
        n, state, words = one.decision.n, PlaybookRunState.COMPLETE, ""
        for place, step in enumerate(one.exlet.steps):
            end = await self.exlets.do_step(one.id, n, place)
            words = end.detail
            if end.state is not StepState.DONE and refusal_of(step) is WhenRefused.STOP:
                state = PlaybookRunState.FAILED
                break
        await self.exlets.finish(one.id, n, state, reason=words)
        if state is PlaybookRunState.FAILED:
            await self.writer.write([one.parked(NEVER, self.clock.now())])

    async def _begin(self, one: PendingFailure) -> None:
        assert self.engine is not None  # noqa: S101 - the caller looked
        words = ", ".join(actions_of(one.exlet.steps))

        def move(one: PendingFailure, known: IncidentStatus, now: int) -> IncidentStatus:
            if known.state is IncidentState.HELD and known.n >= one.decision.n:
                return known  # it has come to its end already, and was kept for a person
            return known.moved(IncidentState.ACTING, now=now, n=one.decision.n, note=words)

        # Noted first: an exlet that is quickly over says itself where the incident stands then.
        await self._move([one], move)
        await self.engine.start_exlet(one.id, one.decision.n, tenant=one.standing.tenant, owner=one.standing.owner)

    async def _move(
        self, cases: Sequence[PendingFailure], move: Callable[[PendingFailure, IncidentStatus, int], IncidentStatus]
    ) -> None:
        if not cases:
            return
        stored, now = await self.incidents.get_standings([one.id for one in cases]), self.clock.now()
        changes = []
        for one in cases:
            known = stored.get(one.id)
            if known is not None and known.standing.state not in CLOSED:
                moved = move(one, known.standing, now)
                if moved is not known.standing:
                    changes.append((moved, known.version))
        if changes:
            await self.incidents.put_standings(changes)
