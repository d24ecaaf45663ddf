"""Exceptions that people raise at any time, past the engine: the triggers that the rules offer, and what no rule foresees (paper P1, section 5).

A trigger is a value of `exception.trigger` for which a rule is written; the rule's description says what it means. An exception that none of them names suspends
its case as a safeguard, at once, and waits in the inbox with its context and with how its raiser would handle it: until a rule is added that answers it, or an
exlet is launched for it. That exlet's own *continue* lifts the safeguard; otherwise a person does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.engine_case import engine_of_version
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import CLOSED, Decision, Incident, IncidentState, status_of
from forestay.domain.exlets.exlet import Exlet, aimed
from forestay.domain.exlets.exlet_plain import exlet_as_plain
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.constraints import holder_of
from forestay.domain.rules.plain_condition import conjunction_of
from forestay.domain.rules.rule_set import keys_for
from forestay.domain.rules.rule_tree import RuleState
from forestay.ports.clock import Clock
from forestay.ports.errors import Conflict, NotFound
from forestay.ports.exceptions.exception_engine import ExceptionEngine
from forestay.ports.flows.flow_engine import CaseSummary
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.services.exceptions.act.incident_actions import ActionTaken
from forestay.services.exceptions.detect.constraint_checker import task_of
from forestay.services.exceptions.detect.exception_event import ExceptionEvent, incident_raised
from forestay.services.exceptions.engines.engine_commands import Unanswered
from forestay.services.exceptions.exception_handler import ExceptionHandler, HandledException
from forestay.services.exceptions.record.decision_log import agreed_on
from forestay.services.flows.case_context import case_context, item_in
from forestay.services.rules.rule_decision import EXLET

ADMINISTRATORS = "administrators"
"""Who is told of what nobody foresaw."""


class Trigger(NamedTuple):
    """Something that can be raised, since a rule answers it."""

    name: str
    words: str
    """What it means, as the rule's author wrote it."""
    rule: str
    acts: bool
    """Whether a rule that acts answers it, not only a shadow."""


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """What somebody raises."""

    case: CaseSummary
    by: str
    event: str
    """The raiser's id of it: the same again is the same exception."""
    trigger: str
    """Its name; of a new exception, what happened."""
    item: str = ""
    reason: str = ""
    """What else there is to say; of a new exception, how it might be handled."""


@dataclass(slots=True)
class Triggers:
    """The service."""

    answers: ExceptionHandler
    engine: ExceptionEngine
    """Where the case lives."""
    store: JobStore
    clock: Clock

    async def offered(self, tenant: str, flow_name: str, item: str = "") -> list[Trigger]:
        """What can be raised for a case of a flow, or for one of its items."""
        await self.answers.get_ready()
        kind = ExceptionType.ITEM_EXTERNAL if item else ExceptionType.CASE_EXTERNAL
        found: dict[str, Trigger] = {}
        for rule_set in self.answers.rules.sets_for(tenant, flow_name):
            for key in keys_for(kind, task_of(item)):
                tree = rule_set.trees.get(key)
                for rule, _ in tree.in_order() if tree is not None else ():
                    acts = rule.state is RuleState.ACTIVE
                    for name in _triggers(rule.condition):
                        known = found.get(name)
                        if known is None or (acts and not known.acts):
                            found[name] = Trigger(name, rule.description, f"{rule_set.id}#{rule.id}", acts)
        return sorted(found.values())

    async def raise_trigger(self, what: TriggerRequest) -> HandledException:
        """Ask the rules, and carry out what they say. `NotFound` if there is no such item."""
        (answer,) = await self.answers.answer([await self._raised(what)])
        return answer

    async def raise_new(self, what: TriggerRequest) -> str:
        """Suspend the case, write down what happened, and tell the administrators; the incident. `Conflict` if the run has ended."""
        raised = await self._raised(what)
        now = self.clock.now()
        holder = holder_of(raised.id)
        verb = Verb(
            now, f"safeguard:{raised.id}", VerbKind.SUSPEND, by=what.by, holder=holder, reason=what.trigger[:200]
        )
        try:
            answer = await self.engine.send_verb(what.case.case, verb)
        except NotFound:
            raise Conflict("the run has ended") from None
        except Unanswered:
            answer = None  # the order stands, and its engine obeys it when it asks the next time
        if answer is not None and not answer.accepted:
            raise Conflict(answer.detail)
        incident = incident_raised(raised)
        note = f"{what.trigger}; the run is suspended until a person decides"
        standing = replace(status_of(incident), state=IncidentState.HELD, due=None, note=note[:1000])
        await self.answers.incidents.add_incidents([(incident, standing)])
        words = f"{what.by} reports for case {what.case.case} of {what.case.name}: {what.trigger}"
        body: dict[str, object] = {"alert": "new-exception", "words": words, "to": [ADMINISTRATORS]}
        body |= {"incident": incident.id, "case": what.case.case, "proposal": what.reason}
        name = f"alert:raised:{incident.id}"
        await self.store.add_records([Record(name, what.case.tenant, "alert", what.case.case, now, body)])
        return incident.id

    async def _raised(self, what: TriggerRequest) -> ExceptionEvent:
        now = self.clock.now()
        state = await self.engine.state(what.case.case)
        context: dict[str, Any] = case_context(state, now, item=what.item)
        round_ = 0
        if what.item:
            found = item_in(state, what.item)
            if found is None:
                raise NotFound(f"the run has no task {what.item}")
            round_ = int(found.get("round", 0))
        context["exception"] = {"trigger": what.trigger}
        context["external"] = {"raised": {"by": what.by, "reason": what.reason}}
        return ExceptionEvent(
            ExceptionType.ITEM_EXTERNAL if what.item else ExceptionType.CASE_EXTERNAL,
            what.case.tenant,
            what.case.owner,
            what.event,
            now,
            engine=engine_of_version(what.case.version),
            case=what.case.case,
            item=what.item,
            task=task_of(what.item),
            round=round_,
            flow=what.case.version,
            flow_name=what.case.name,
            context=context,
        )

    async def launch(self, incident: Incident, exlet: Exlet, *, by: str) -> ActionTaken:
        """Carry out an exlet that a person has written for an incident. `Conflict` if it is answered, or is just being."""
        incidents = self.answers.incidents
        stored = (await incidents.get_standings([incident.id])).get(incident.id)
        if stored is None or stored.standing.state in CLOSED:
            raise Conflict("the incident is already answered")
        if stored.standing.state is IncidentState.ACTING:
            raise Conflict("a playbook is running for it; try again later")
        n = stored.standing.n + 1
        while await incidents.get_decision(incident.id, n) is not None:
            n += 1
        exlet = aimed(exlet, at_job=bool(incident.job))
        detail: Mapping[str, object] = {"words": f"launched by {by}"}
        decision = Decision(
            incident.id, n, incident.tenant, self.clock.now(), EXLET, by, exlet=exlet_as_plain(exlet), detail=detail
        )
        (agreed,) = await agreed_on(self.answers.incidents, [decision])
        if agreed.by != by or agreed.exlet != decision.exlet:
            raise Conflict("the incident has changed; read it again")
        return await self.answers.act(incident, agreed, by_person=True)


def _triggers(condition: str) -> Iterator[str]:
    """The triggers that a condition asks for."""
    for one in conjunction_of(condition).comparisons:
        if one.field == "exception.trigger":
            if one.sign == "==" and isinstance(one.value, str):
                yield one.value
            elif one.sign == "among" and isinstance(one.value, tuple):
                yield from (str(value) for value in one.value)
