"""From a decision to the act: which decision stands, what the safeguards say, the entry in the audit log, and then the playbook. The same for every exception."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from forestay.domain.exceptions.incidents.incident import (
    CLOSED,
    OWN_ENGINE,
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
)
from forestay.domain.exceptions.safeguards.audit import AuditNote
from forestay.domain.exceptions.safeguards.safeguards import ActionRefused as Blocked
from forestay.domain.exceptions.safeguards.safeguards import ActionRequest, Safeguard
from forestay.domain.playbooks.action import worklets_of
from forestay.domain.playbooks.engine_order import SETTLING, EngineOrder, OrderOutcome
from forestay.domain.playbooks.playbook import Playbook, actions_of, is_one_write
from forestay.domain.playbooks.playbook_run import PlaybookRunState, StepState
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound
from forestay.ports.exceptions.incident_store import SHOWN_AFTER, IncidentQuery, IncidentStore
from forestay.ports.exceptions.playbook_engine import PlaybookEngine
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner
from forestay.services.exceptions.engines.engine_commands import CommandReply, Unanswered
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.exceptions.record.incident_settlement import settle_held
from forestay.services.exceptions.safeguards.action_limits import ActionLimits
from forestay.services.exceptions.safeguards.approvals import Approvals

NOBODY = "this domain does not support it"
MOST_SETTLED = 100


class ActionStatus(StrEnum):
    """What became of the wish to act."""

    DONE = "done"
    REFUSED = "refused"
    """It was tried, and could not be done: a person is asked."""
    BEGUN = "begun"
    """The engine carries it out, step by step."""
    PUT_OFF = "put-off"
    """The safeguards did not let it through."""


class ActionTaken(NamedTuple):
    """What was done by a decision."""

    did: ActionStatus
    words: str = ""
    again: int | None = None
    """When to ask the safeguards again; None: only a person can help."""


@dataclass(slots=True)
class IncidentActions:
    """The service."""

    incidents: IncidentStore
    clock: Clock
    playbooks: PlaybookRunner | None = None
    engine: PlaybookEngine | None = None
    """Where playbooks of several steps live; None: this domain runs no runs."""
    safeguards: ActionLimits | None = None
    audit: AuditLog | None = None
    approvals: Approvals | None = None
    """Asked for what one person's rule may not do alone."""

    async def act(
        self, incident: Incident, decision: Decision, playbook: Playbook, request: ActionRequest | None
    ) -> ActionTaken:
        """Carry out what was decided, if the safeguards let it; each step takes place once, whoever repeats this.

        Without a request nobody is asked: a person has decided.
        """
        if self.safeguards is not None and request is not None:
            if self.approvals is not None:
                request = await self.approvals.given_to(request)
            (permit,) = await self.safeguards.permit([request])
            if isinstance(permit, Blocked):
                if permit.safeguard is Safeguard.APPROVAL and self.approvals is not None:
                    await self.approvals.ask_for(request, decision, ", ".join(actions_of(playbook.steps)), job="")
                return await self._put_off(incident, decision, permit)
        at_once = self._at_once(incident, playbook)
        if self.playbooks is None or (self.engine is None and not at_once):
            return await self._put_off(incident, decision, None)
        if self.audit is not None:
            # First the entry, then the act.
            acts = {
                "incident": incident.id,
                "n": decision.n,
                "owner": incident.owner,
                "acts": [*actions_of(playbook.steps)],
            }
            why, on = str(decision.detail.get("words", "")), incident.job or incident.run
            what = "rule.act" if request is not None else "playbook.launch"
            await self.audit.write(incident.tenant, [AuditNote(decision.by, what, on, why, acts)])
        words = ", ".join(actions_of(playbook.steps))
        if at_once:
            try:
                return await self._do_it(self.playbooks, incident.id, decision.n)
            except Unanswered:
                # The order stands; when it is answered, `go_on` does the rest.
                await self.note(incident.id, decision.n, IncidentState.ACTING, words)
                return ActionTaken(ActionStatus.BEGUN, words)
        assert self.engine is not None  # noqa: S101 - looked at above
        # Noted first: a playbook that is quickly over says itself where the incident stands then.
        await self.note(incident.id, decision.n, IncidentState.ACTING, words)
        await self.engine.start_playbook(incident.id, decision.n, tenant=incident.tenant, owner=incident.owner)
        return ActionTaken(ActionStatus.BEGUN, words)

    def _at_once(self, incident: Incident, playbook: Playbook) -> bool:
        """Whether no workflow is needed for it. What another engine is to do takes as long as that engine takes, so it has one where there is a place for it."""
        if incident.engine != OWN_ENGINE:
            return self.engine is None and len(playbook.steps) == 1 and not worklets_of(playbook.steps[0].do)
        return is_one_write(playbook, of_run=bool(incident.run))

    async def _do_it(self, playbooks: PlaybookRunner, incident: str, n: int) -> ActionTaken:
        end = await playbooks.do_step(incident, n, 0)
        done = end.state is StepState.DONE
        state = PlaybookRunState.COMPLETE if done else PlaybookRunState.FAILED
        await playbooks.finish(incident, n, state, reason=end.detail)
        return ActionTaken(ActionStatus.DONE if done else ActionStatus.REFUSED, end.detail)

    async def go_on(self, order: EngineOrder, answer: CommandReply) -> None:
        """Another engine has answered: the step that ordered it is over, if there is no workflow that waits for it. What a person has settled waits for nobody any more."""
        if not order.step:
            if answer.outcome is OrderOutcome.DONE and order.instance and order.verb in SETTLING:
                await self._settled_by(order)
        elif self.engine is None and self.playbooks is not None:
            incident, n, _ = order.step.split(":")
            with suppress(NotFound, Unanswered):
                await self._do_it(self.playbooks, incident, int(n))

    async def _settled_by(self, order: EngineOrder) -> None:
        query = IncidentQuery(run=order.run, instance=order.instance, states=frozenset({IncidentState.HELD}))
        page = await self.incidents.find(query, limit=MOST_SETTLED)
        if not page.statuses:
            await asyncio.sleep(SHOWN_AFTER)
            page = await self.incidents.find(query, limit=MOST_SETTLED)
        ids = [stored.status.id for stored in page.statuses]
        await settle_held(self.incidents, ids, f"{order.by}: {order.verb}", now=self.clock.now())

    async def _put_off(self, incident: Incident, decision: Decision, refused: Blocked | None) -> ActionTaken:
        """It is not done now: later by itself, or when a person has looked."""
        words, again = (NOBODY, None) if refused is None else (refused.words, refused.again)
        state = IncidentState.HELD if again is None else IncidentState.WAITING
        await self.note(
            incident.id, decision.n, state, words, due=again, group="" if refused is None else refused.group
        )
        return ActionTaken(ActionStatus.PUT_OFF, words, again)

    async def note(
        self, incident: str, n: int, state: IncidentState, words: str, *, due: int | None = None, group: str = ""
    ) -> None:
        """Say where an incident stands. Only for people and for who looks after what is due: what others wrote meanwhile is left as it is."""
        known = (await self.incidents.get_statuses([incident])).get(incident)
        if known is not None and known.status.state not in CLOSED and not _over(known.status, n, state):
            now, group = self.clock.now(), group or known.status.group
            moved = known.status.moved(state, now=now, due=due, n=n, note=words, group=group)
            await self.incidents.put_statuses([(moved, known.version)])


def _over(status: IncidentStatus, n: int, state: IncidentState) -> bool:
    """Whether a playbook that is to be said to act has come to its end already, and was kept for a person."""
    return state is IncidentState.ACTING and status.state is IncidentState.HELD and status.n >= n
