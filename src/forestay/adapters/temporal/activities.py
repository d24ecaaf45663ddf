"""The activities of runs: each calls a service. Errors that a retry cannot fix are marked for the workflow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from forestay.adapters.temporal.activity_errors import refusing
from forestay.adapters.temporal.check_activities import CheckActivities
from forestay.adapters.temporal.playbook_activities import PlaybookActivities
from forestay.adapters.temporal.schedules import from_plain as from_schedule_plain
from forestay.adapters.temporal.workflows.temporal_runtime import MESSAGES, REFUSED, STATE, Plain
from forestay.domain.flows.commands import AskPerson, CloseQuestion, StartRun
from forestay.domain.flows.events import VerbKind
from forestay.domain.flows.execution.messages import as_plain, from_plain, order_from_plain
from forestay.domain.flows.execution.run_names import run_of
from forestay.domain.flows.scatter.elements import from_text, to_text
from forestay.domain.peers.placing import Placing
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.ports.rules.worklets import Worklets
from forestay.services.data.listings import ListingRound, Listings, Watch
from forestay.services.flows.external_events import ExternalEvents
from forestay.services.flows.flow_jobs import FlowJobs, JobBatch
from forestay.services.flows.questions import Questions, RunOf
from forestay.services.flows.run_schedules import RunSchedules
from forestay.services.peers.run_placement import RunPlacement

WATCH = ("pattern", "until_file", "until_count", "until_quiet", "begun")
AT_ONCE = 50
"""Workflows that are signalled at the same time."""


@dataclass(slots=True)
class Activities:
    """Bound to the services of one orchestrator."""

    client: Client
    store: JobStore
    jobs: FlowJobs
    listings: Listings
    worklets: Worklets
    playbooks: PlaybookActivities
    checks: CheckActivities
    places: RunPlacement
    questions: Questions
    schedules: RunSchedules
    events: ExternalEvents

    def all(self) -> Sequence[Callable[..., Any]]:
        return (
            *self.playbooks.all(),
            *self.checks.all(),
            self.submit_jobs,
            self.steer_jobs,
            self.check_jobs,
            self.prepare_run,
            self.place_run,
            self.last_state,
            self.bind_worklet,
            self.find_compensation,
            self.start_scheduled,
            self.run_has_ended,
            self.await_event,
            self.close_wait,
            self.ask_person,
            self.close_question,
            self.list_files,
            self.report,
            self.tell_many,
            self.read_results,
        )

    def waiting(self) -> Sequence[Callable[..., Any]]:
        """The activities that take long because they wait."""
        return (self.watch_files,)

    @activity.defn(name="submit_jobs")
    async def submit_jobs(self, payload: Plain) -> Plain | None:
        """Returns None, or the incident that keeps the round from beginning, or the jobs that can never be created."""
        with refusing():
            submitted = await self.jobs.submit(_batch(payload))
        if submitted.bad:
            return {"bad": to_text(submitted.bad), "reason": submitted.reason}
        return {"incident": submitted.incident} if submitted.incident else None

    @activity.defn(name="steer_jobs")
    async def steer_jobs(self, payload: Plain) -> None:
        with refusing():
            await self.jobs.steer(_batch(payload), payload["verb"], payload.get("holder", ""))

    @activity.defn(name="check_jobs")
    async def check_jobs(self, payload: Plain) -> Plain:
        with refusing():
            return await self.jobs.check(_batch(payload))

    @activity.defn(name="prepare_run")
    async def prepare_run(self, payload: Plain) -> Plain:
        command = from_plain(payload["command"])
        assert isinstance(command, StartRun)  # noqa: S101 - a run sends nothing else
        with refusing():
            return await self.jobs.prepare_run(
                payload["tenant"], payload["owner"], payload["run"], payload["flow"], command
            )

    @activity.defn(name="place_run")
    async def place_run(self, payload: Plain) -> Plain:
        """Start a sub-flow in the domain where it is expected to end first. Its completion is reported to the run, wherever it runs."""
        prepared = await self.prepare_run(payload)
        if prepared.get("incident"):
            return {"incident": prepared["incident"]}
        command = from_plain(payload["command"])
        assert isinstance(command, StartRun)  # noqa: S101 - a run sends nothing else
        work, index = command.order.work, command.index
        wanted = Placing(
            run=run_of(payload["run"], work, index),
            tenant=payload["tenant"],
            owner=payload["owner"],
            parent=payload["run"],
            work=work,
            index=index,
            flow=command.flow,
            name=prepared["name"],
            wanted=command.domain,
            params=prepared["params"],
            above=(payload["flow"], *payload.get("above", ())),
            holders=command.holders,
            held=tuple(prepared["held"]),
        )
        with refusing():
            placed = await self.places.place(wanted)
        return {"domain": placed.at, "number": placed.number}

    @activity.defn(name="last_state")
    async def last_state(self, payload: Plain) -> Plain:
        """The final state of a run, and its flow."""
        try:
            state = await self.client.get_workflow_handle(payload["ended"]).query(STATE, result_type=dict)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise ApplicationError("the run no longer exists", type=REFUSED, non_retryable=True) from error
            raise
        with refusing():
            text = await self.jobs.flows.text(payload["tenant"], state["version"])
        return {"state": state, "flow": text, "name": json.loads(text)["name"]}

    @activity.defn(name="bind_worklet")
    async def bind_worklet(self, payload: Plain) -> Plain:
        """The flow of a late-bound task; an empty one: nobody binds it."""
        with refusing():
            bound_flow = await self.worklets.bound(
                payload["tenant"], payload["late_bound"], run=payload["run"], params=payload["params"]
            )
        return (
            {"flow": bound_flow.flow, "params": dict(bound_flow.params)} if bound_flow else {"flow": "", "params": {}}
        )

    @activity.defn(name="find_compensation")
    async def find_compensation(self, payload: Plain) -> Plain:
        """The present version of an action's compensation; an empty one: nothing is registered."""
        stored = await self.jobs.library.find(payload["tenant"], payload["action"])
        if stored is None:
            return {"version": "", "tries": 0}
        return {"version": stored.version, "tries": stored.registered.compensation.tries}

    @activity.defn(name="start_scheduled")
    async def start_scheduled(self, payload: Plain) -> str:
        """Start the run of a schedule for a time; a repeat finds the same run."""
        with refusing():
            return await self.schedules.start(
                payload["tenant"],
                payload["owner"],
                from_schedule_plain(payload),
                at=payload["at"],
                starter=payload["starter"],
            )

    @activity.defn(name="run_has_ended")
    async def run_has_ended(self, payload: Plain) -> bool:
        with refusing():
            return await self.schedules.has_ended(payload["run"])

    @activity.defn(name="ask_person")
    async def ask_person(self, payload: Plain) -> None:
        command = from_plain(payload["question"])
        assert isinstance(command, AskPerson)  # noqa: S101 - a run sends nothing else
        with refusing():
            await self.questions.ask(await self._asks(payload), command)

    @activity.defn(name="close_question")
    async def close_question(self, payload: Plain) -> None:
        command = from_plain(payload["closed"])
        assert isinstance(command, CloseQuestion)  # noqa: S101 - a run sends nothing else
        with refusing():
            await self.questions.close(await self._asks(payload), command)

    async def _asks(self, payload: Plain) -> RunOf:
        flow = await self.jobs.flows.name(payload["tenant"], payload["flow"])
        return RunOf(payload["tenant"], payload["owner"], payload["run"], flow)

    @activity.defn(name="await_event")
    async def await_event(self, payload: Plain) -> Plain | None:
        """The event for the wait, if one came before it."""
        with refusing():
            arrived = await self.events.wait(
                payload["tenant"], payload["event"], payload["key"], run=payload["run"], work=payload["work"]
            )
        return as_plain(arrived) if arrived is not None else None

    @activity.defn(name="close_wait")
    async def close_wait(self, payload: Plain) -> None:
        with refusing():
            await self.events.close(
                payload["tenant"], payload["event"], payload["key"], run=payload["run"], work=payload["work"]
            )

    @activity.defn(name="list_files")
    async def list_files(self, payload: Plain) -> Plain:
        with refusing():
            summary = await self.listings.list_files(_round(payload), payload["pattern"], lines=payload["lines"])
        return {"listing": summary.listing, "count": summary.count}

    @activity.defn(name="watch_files")
    async def watch_files(self, payload: Plain) -> Plain:
        """Returns when there are new files, or no more will come, or none came for long."""
        watch = Watch(**{name: payload[name] for name in WATCH})
        with refusing():
            summary = await self.listings.watch(_round(payload), watch, payload["known"])
        return {"listing": summary.listing, "count": summary.count, "ended": summary.ended}

    @activity.defn(name="report")
    async def report(self, payload: Plain) -> None:
        """Add to the run's story; create-only, so a repeat changes nothing."""
        run = payload["run"]
        body = {name: payload[name] for name in ("kind", "task", "detail")}
        record = Record(f"run:{run}:{payload['id']}", payload["tenant"], "run-event", run, payload["at"], body)
        with refusing():
            await self.store.add_records([record])
            await self.checks.reported(payload)

    @activity.defn(name="read_results")
    async def read_results(self, payload: Plain) -> list[Any]:
        with refusing():
            return await self.jobs.results(
                payload["run"], payload["works"], payload["count"], payload["result"], payload["most"]
            )

    @activity.defn(name="tell_many")
    async def tell_many(self, payload: Plain) -> None:
        """Send many workflows the same signal; those that have ended do not need it."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(target: str) -> None:
            async with turns:
                try:
                    await self.client.get_workflow_handle(target).signal(MESSAGES, [payload["message"]])
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        raise
                    if payload["message"].get("kind") in (VerbKind.FORCE_FAIL.value, VerbKind.REMOVE.value):
                        await self.places.cancel(target)

        async with asyncio.TaskGroup() as group:
            for target in payload["targets"]:
                group.create_task(one(target))


def _batch(payload: Plain) -> JobBatch:
    order = payload["order"] if "task" in payload["order"] else {"instance": "", "task": "", **payload["order"]}
    return JobBatch(
        tenant=payload["tenant"],
        owner=payload["owner"],
        run=payload["run"],
        flow=payload["flow"],
        order=order_from_plain(order),
        shard=payload.get("shard", -1),
        base=payload.get("base", 0),
        first=payload["first"],
        count=payload["count"],
        skip=from_text(payload.get("skip", "0")),
        holders=tuple(payload.get("holders", ())),
        of=payload.get("of", 0),
        ended=from_text(payload.get("ended", "0")),
        cancelled=payload.get("cancelled", False),
        above=tuple(payload.get("above", ())),
        waiting=from_text(payload.get("waiting", "0")),
        works=tuple(payload.get("works", ())),
    )


def _round(payload: Plain) -> ListingRound:
    return ListingRound(payload["tenant"], payload["run"], payload["work"], payload["dimension"])
