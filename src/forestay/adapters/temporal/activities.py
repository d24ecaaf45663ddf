"""What workflows have done outside: each activity hands on to a service. Errors that no repeat can mend are told apart for the workflow."""

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
from forestay.adapters.temporal.exlet_activities import ExletActivities
from forestay.adapters.temporal.workflows.temporal_runtime import MESSAGES, REFUSED, STATE, Plain
from forestay.domain.flows.commands import StartCase
from forestay.domain.flows.events import VerbKind
from forestay.domain.flows.execution.case_names import case_of
from forestay.domain.flows.execution.messages import from_plain, order_from_plain
from forestay.domain.flows.scatter.elements import from_text
from forestay.domain.peers.placing import Placing
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.ports.rules.worklets import Worklets
from forestay.services.data.listings import ListingRound, Listings, Watch
from forestay.services.flows.flow_jobs import FlowJobs, JobBatch
from forestay.services.peers.run_placement import RunPlacement

WATCH = ("pattern", "until_file", "until_count", "until_quiet", "begun")
AT_ONCE = 50
"""Workflows that are told something at the same time."""


@dataclass(slots=True)
class Activities:
    """Bound to the services of one worker."""

    client: Client
    store: JobStore
    jobs: FlowJobs
    listings: Listings
    worklets: Worklets
    exlets: ExletActivities
    checks: CheckActivities
    places: RunPlacement

    def all(self) -> Sequence[Callable[..., Any]]:
        return (
            *self.exlets.all(),
            *self.checks.all(),
            self.submit_jobs,
            self.steer_jobs,
            self.check_jobs,
            self.prepare_case,
            self.place_case,
            self.last_state,
            self.bind_worklet,
            self.list_files,
            self.report,
            self.tell_many,
            self.read_results,
        )

    def waiting(self) -> Sequence[Callable[..., Any]]:
        """Those that take long because they wait."""
        return (self.watch_files,)

    @activity.defn(name="submit_jobs")
    async def submit_jobs(self, given: Plain) -> Plain | None:
        """Nothing is answered, or the incident for which the round may not begin."""
        with refusing():
            incident = await self.jobs.submit(_batch(given))
        return {"incident": incident} if incident else None

    @activity.defn(name="steer_jobs")
    async def steer_jobs(self, given: Plain) -> None:
        with refusing():
            await self.jobs.steer(_batch(given), given["verb"], given.get("holder", ""))

    @activity.defn(name="check_jobs")
    async def check_jobs(self, given: Plain) -> Plain:
        with refusing():
            return await self.jobs.check(_batch(given))

    @activity.defn(name="prepare_case")
    async def prepare_case(self, given: Plain) -> Plain:
        command = from_plain(given["command"])
        assert isinstance(command, StartCase)  # noqa: S101 - a case sends nothing else
        with refusing():
            return await self.jobs.prepare_case(given["tenant"], given["owner"], given["case"], given["flow"], command)

    @activity.defn(name="place_case")
    async def place_case(self, given: Plain) -> Plain:
        """Start a sub-flow in the domain where it is expected to end first. Its end is told to the case, wherever it runs."""
        prepared = await self.prepare_case(given)
        if prepared.get("incident"):
            return {"incident": prepared["incident"]}
        command = from_plain(given["command"])
        assert isinstance(command, StartCase)  # noqa: S101 - a case sends nothing else
        work, index = command.order.work, command.index
        wanted = Placing(
            case=case_of(given["case"], work, index),
            tenant=given["tenant"],
            owner=given["owner"],
            parent=given["case"],
            work=work,
            index=index,
            flow=command.flow,
            name=prepared["name"],
            wanted=command.domain,
            params=prepared["params"],
            above=(given["flow"], *given.get("above", ())),
            holders=command.holders,
            held=tuple(prepared["held"]),
        )
        with refusing():
            placed = await self.places.place(wanted)
        return {"domain": placed.at, "number": placed.number}

    @activity.defn(name="last_state")
    async def last_state(self, given: Plain) -> Plain:
        """The state with which a case ended, and its flow."""
        try:
            state = await self.client.get_workflow_handle(given["ended"]).query(STATE, result_type=dict)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise ApplicationError("the run no longer exists", type=REFUSED, non_retryable=True) from error
            raise
        with refusing():
            text = await self.jobs.flows.text(given["tenant"], state["version"])
        return {"state": state, "flow": text, "name": json.loads(text)["name"]}

    @activity.defn(name="bind_worklet")
    async def bind_worklet(self, given: Plain) -> Plain:
        """Which flow is to be run at a place; an empty one: nobody answers for it."""
        with refusing():
            found = await self.worklets.bound(
                given["tenant"], given["place"], case=given["case"], params=given["params"]
            )
        return {"flow": found.flow, "params": dict(found.params)} if found else {"flow": "", "params": {}}

    @activity.defn(name="list_files")
    async def list_files(self, given: Plain) -> Plain:
        with refusing():
            found = await self.listings.list_files(_round(given), given["pattern"], lines=given["lines"])
        return {"listing": found.listing, "count": found.count}

    @activity.defn(name="watch_files")
    async def watch_files(self, given: Plain) -> Plain:
        """Returns when something is new, or no more will come, or nothing was new for long."""
        watch = Watch(**{name: given[name] for name in WATCH})
        with refusing():
            found = await self.listings.watch(_round(given), watch, given["known"])
        return {"listing": found.listing, "count": found.count, "ended": found.ended}

    @activity.defn(name="report")
    async def report(self, given: Plain) -> None:
        """Part of the case's story; create-only, so a repeat changes nothing."""
        case = given["case"]
        body = {name: given[name] for name in ("kind", "item", "detail")}
        record = Record(f"case:{case}:{given['id']}", given["tenant"], "case-event", case, given["at"], body)
        with refusing():
            await self.store.add_records([record])
            await self.checks.reported(given)

    @activity.defn(name="read_results")
    async def read_results(self, given: Plain) -> list[Any]:
        with refusing():
            return await self.jobs.results(
                given["case"], given["works"], given["count"], given["result"], given["most"]
            )

    @activity.defn(name="tell_many")
    async def tell_many(self, given: Plain) -> None:
        """Tell many workflows the same; one that has ended needs to hear nothing."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(target: str) -> None:
            async with turns:
                try:
                    await self.client.get_workflow_handle(target).signal(MESSAGES, [given["message"]])
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        raise
                    if given["message"].get("kind") in (VerbKind.FORCE_FAIL.value, VerbKind.REMOVE.value):
                        await self.places.cancel(target)

        async with asyncio.TaskGroup() as group:
            for target in given["targets"]:
                group.create_task(one(target))


def _batch(given: Plain) -> JobBatch:
    order = given["order"] if "task" in given["order"] else {"item": "", "task": "", **given["order"]}
    return JobBatch(
        tenant=given["tenant"],
        owner=given["owner"],
        case=given["case"],
        flow=given["flow"],
        order=order_from_plain(order),
        shard=given.get("shard", -1),
        base=given.get("base", 0),
        first=given["first"],
        count=given["count"],
        skip=from_text(given.get("skip", "0")),
        holders=tuple(given.get("holders", ())),
        of=given.get("of", 0),
        ended=from_text(given.get("ended", "0")),
        cancelled=given.get("cancelled", False),
        above=tuple(given.get("above", ())),
    )


def _round(given: Plain) -> ListingRound:
    return ListingRound(given["tenant"], given["case"], given["work"], given["dimension"])
