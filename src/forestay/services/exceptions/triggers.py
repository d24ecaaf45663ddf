"""Exceptions that people raise at any time, outside the engine: triggers offered by rules, and cases that no rule covers (paper P1, section 5).

A trigger is a value of `exception.trigger` for which a rule is written; the rule's description says what it means. An exception that no trigger names suspends
its run at once as a safeguard, and waits in the inbox with its context and its raiser's proposal for handling it: until a rule is added that answers it, or a
playbook is launched for it. That playbook's own *continue* lifts the safeguard; otherwise a person does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.engine_run import engine_of_version
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import CLOSED, PLAYBOOK, Decision, Incident, IncidentState, status_of
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.constraints import holder_of
from forestay.domain.jobs.job_document import task_of
from forestay.domain.playbooks.playbook import Playbook, aimed, playbook_as_plain
from forestay.domain.rules.plain_condition import conjunction_of
from forestay.domain.rules.rule_set import keys_for
from forestay.domain.rules.rule_tree import RuleState
from forestay.ports.clock import Clock
from forestay.ports.errors import Conflict, NotFound
from forestay.ports.exceptions.exception_engine import ExceptionEngine
from forestay.ports.flows.flow_engine import RunSummary
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.services.exceptions.act.action_executor import ActionTaken
from forestay.services.exceptions.engines.engine_commands import Unanswered
from forestay.services.exceptions.exception_event import ExceptionEvent, incident_raised
from forestay.services.exceptions.pipeline import ExceptionPipeline, HandledException
from forestay.services.flows.run_context import instance_in, run_context

ADMINISTRATORS = "administrators"
"""The people who are notified of unforeseen exceptions."""


class Trigger(NamedTuple):
    """An exception that can be raised, since a rule answers it."""

    name: str
    words: str
    """The description by the rule's author."""
    rule: str
    acts: bool
    """Whether a rule that acts answers it, not only a shadow."""


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """A person's request to raise an exception."""

    run: RunSummary
    by: str
    event: str
    """The raiser's id of the event: a repeat is the same exception."""
    trigger: str
    """The trigger's name; for a new exception, what happened."""
    instance: str = ""
    reason: str = ""
    """Further remarks; for a new exception, how it might be handled."""


@dataclass(slots=True)
class Triggers:
    """The service."""

    pipeline: ExceptionPipeline
    engine: ExceptionEngine
    """The engine of the run."""
    store: JobStore
    clock: Clock

    async def offered(self, tenant: str, flow_name: str, instance: str = "") -> list[Trigger]:
        """The triggers for a run of a flow, or for one of its tasks."""
        await self.pipeline.decider.get_ready()
        kind = ExceptionType.TASK_EXTERNAL if instance else ExceptionType.RUN_EXTERNAL
        triggers: dict[str, Trigger] = {}
        for rule_set in self.pipeline.decider.rules.sets_for(tenant, flow_name):
            for key in keys_for(kind, task_of(instance)):
                tree = rule_set.trees.get(key)
                for rule, _ in tree.in_order() if tree is not None else ():
                    acts = rule.state is RuleState.ACTIVE
                    for name in _triggers(rule.condition):
                        known = triggers.get(name)
                        if known is None or (acts and not known.acts):
                            triggers[name] = Trigger(name, rule.description, f"{rule_set.id}#{rule.id}", acts)
        return sorted(triggers.values())

    async def raise_trigger(self, what: TriggerRequest) -> HandledException:
        """Evaluate the rules, and carry out their decision. `NotFound` if there is no such task."""
        (answer,) = await self.pipeline.handle([await self._raised(what)])
        return answer

    async def raise_new(self, what: TriggerRequest) -> str:
        """Suspend the run, record what happened, and notify the administrators; returns the incident. `Conflict` if the run has ended."""
        raised = await self._raised(what)
        now = self.clock.now()
        holder = holder_of(raised.id)
        verb = Verb(
            now, f"safeguard:{raised.id}", VerbKind.SUSPEND, by=what.by, holder=holder, reason=what.trigger[:200]
        )
        try:
            answer = await self.engine.send_verb(what.run.run, verb)
        except NotFound:
            raise Conflict("the run has ended") from None
        except Unanswered:
            answer = None  # the command is still valid; its engine obeys it when it polls the next time
        if answer is not None and not answer.accepted:
            raise Conflict(answer.detail)
        incident = incident_raised(raised, await self.pipeline.detector.history.external.values())
        note = f"{what.trigger}; the run is suspended until a person decides"
        status = replace(status_of(incident), state=IncidentState.HELD, due=None, note=note[:1000])
        await self.pipeline.incidents.add_incidents([(incident, status)])
        words = f"{what.by} reports for run {what.run.run} of {what.run.name}: {what.trigger}"
        body: dict[str, object] = {"alert": "new-exception", "words": words, "to": [ADMINISTRATORS]}
        body |= {"incident": incident.id, "run": what.run.run, "proposal": what.reason}
        name = f"alert:raised:{incident.id}"
        await self.store.add_records([Record(name, what.run.tenant, "alert", what.run.run, now, body)])
        return incident.id

    async def _raised(self, what: TriggerRequest) -> ExceptionEvent:
        now = self.clock.now()
        state = await self.engine.state(what.run.run)
        context: dict[str, Any] = run_context(state, now, instance=what.instance)
        round_ = 0
        if what.instance:
            instance = instance_in(state, what.instance)
            if instance is None:
                raise NotFound(f"the run has no task {what.instance}")
            round_ = int(instance.get("round", 0))
        context["exception"] = {"trigger": what.trigger}
        context["external"] = {"raised": {"by": what.by, "reason": what.reason}}
        return ExceptionEvent(
            ExceptionType.TASK_EXTERNAL if what.instance else ExceptionType.RUN_EXTERNAL,
            what.run.tenant,
            what.run.owner,
            what.event,
            now,
            engine=engine_of_version(what.run.version),
            run=what.run.run,
            instance=what.instance,
            task=task_of(what.instance),
            round=round_,
            flow=what.run.version,
            flow_name=what.run.name,
            context=context,
        )

    async def launch(self, incident: Incident, playbook: Playbook, *, by: str) -> ActionTaken:
        """Carry out a playbook that a person has written for an incident. `Conflict` if it was answered, or is being answered."""
        incidents = self.pipeline.incidents
        stored = (await incidents.get_statuses([incident.id])).get(incident.id)
        if stored is None or stored.status.state in CLOSED:
            raise Conflict("the incident is already answered")
        if stored.status.state is IncidentState.ACTING:
            raise Conflict("a playbook is running for it; try again later")
        n = stored.status.n + 1
        while await incidents.get_decision(incident.id, n) is not None:
            n += 1
        playbook = aimed(playbook, at_job=bool(incident.job))
        detail: Mapping[str, object] = {"words": f"launched by {by}"}
        decision = Decision(
            incident.id,
            n,
            incident.tenant,
            self.clock.now(),
            PLAYBOOK,
            by,
            playbook=playbook_as_plain(playbook),
            detail=detail,
        )
        (agreed,) = await self.pipeline.log.agree([decision])
        if agreed.by != by or agreed.playbook != decision.playbook:
            raise Conflict("the incident has changed; read it again")
        return await self.pipeline.act_on(incident, stored.status, agreed, by_person=True)


def _triggers(condition: str) -> Iterator[str]:
    """The triggers named in a condition."""
    for comparison in conjunction_of(condition).comparisons:
        if comparison.field == "exception.trigger":
            if comparison.sign == "==" and isinstance(comparison.value, str):
                yield comparison.value
            elif comparison.sign == "among" and isinstance(comparison.value, tuple):
                yield from (str(value) for value in comparison.value)
