"""Keeps a site supplied with pilots: reads its demand, plans launches, submits them, and reports what the batch system says about them.

The state is the server's record of launches. A launch is recorded before it is submitted, its id is in the batch job's name, and a launch that
a killed agent may have submitted is searched by that name before anything is submitted again. Nothing is concluded from the batch system's
silence: then nothing is submitted and nothing is given up, and the next query waits longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from forestay.domain.sites.batch import (
    FORGOTTEN,
    OVER,
    BatchJob,
    BatchOutcome,
    BatchState,
    PilotJob,
    SubmitRefusal,
    SubmitRefused,
)
from forestay.domain.sites.fleet import FleetPlan, size_and_owner
from forestay.domain.sites.launch import GIVEN_UP, LaunchEnd, LaunchReport, LaunchState
from forestay.ports.clock import Clock, Ids
from forestay.ports.errors import PortError, Transient
from forestay.ports.pilots.pilot_spool import PilotSpool
from forestay.ports.sites.batch import BatchReader, BatchSubmitter
from forestay.ports.sites.site_api import SeenLaunch, SiteApi
from forestay.services.sites.fleet_planner import FleetPlanner
from forestay.services.sites.site_policy import SitePolicy


@dataclass(slots=True)
class _Backoff:
    """Increasing waits while something does not answer."""

    first: float
    longest: float
    wait: float = 0.0
    until: float = 0.0
    why: str = ""

    def failed(self, now: float, why: str) -> None:
        self.wait = min(self.longest, max(self.first, 2 * self.wait))
        self.until = now + self.wait
        self.why = " ".join(why.split())

    def good(self) -> None:
        self.wait = self.until = 0.0
        self.why = ""


class SiteAgent:
    """The service: one site's agent."""

    def __init__(
        self,
        api: SiteApi,
        *,
        submitter: BatchSubmitter,
        reader: BatchReader,
        spool: PilotSpool,
        clock: Clock,
        ids: Ids,
        policy: SitePolicy,
        pilot_job: Callable[[str, str, str], PilotJob],
        greeting: Mapping[str, object],
        on_event: Callable[[str, Mapping[str, object]], None] = lambda _event, _facts: None,
        passed: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`pilot_job` creates the batch job of a launch from its id, its size and the file with its secret.

        `passed` is called between every two steps with the name of the point, for tests that stop there.
        """
        self.api = api
        self.submitter = submitter
        self.reader = reader
        self.spool = spool
        self.clock = clock
        self.ids = ids
        self.policy = policy
        self.pilot_job = pilot_job
        self.greeting = greeting
        self.told = on_event
        self.passed = passed
        self.last_plan = FleetPlan()
        self._fleet = FleetPlanner(policy)
        self._reading = _Backoff(policy.first_rest, policy.longest_rest)
        self._submitting = _Backoff(policy.first_rest, policy.longest_rest)
        self._unsent: set[str] = set()
        """Planned launches that certainly are not at the batch system: this process did not submit them, or was refused."""
        self._forgotten: dict[str, float] = {}
        """Launches that the batch system accepted but no longer knows, although it answers, and since when."""

    @property
    def trouble(self) -> str:
        """The problem that keeps the agent from its work, as text."""
        return self._submitting.why or self._reading.why

    async def look(self) -> None:
        """One round: report to the server, measure, poll the batch system, decide, submit. Raises the errors of the server and the file system."""
        await self.api.hello(self._said())
        self.passed("greeted")
        if not self._fleet.remembers:
            self._fleet.recall(await self.api.ended(), self.clock.monotonic())
            self.passed("remembered")
        seen = await self.api.demand()
        self.passed("measured")
        absent = await self._reconcile(seen.launches)
        self.last_plan = self._fleet.decide(seen, absent, self.clock.monotonic())
        await self._carry_out(self.last_plan, absent)
        await self.spool.clear({launch.id for launch in seen.launches} | self._unsent)

    def _said(self) -> dict[str, object]:
        limits = self.policy.thresholds
        # A server of the last release does not know of them, and need not as long as they say nothing new.
        users: dict[str, object] = {}
        if self.policy.own_users is not None:
            users = {"run_as": "submitter", "unmapped": list(self._fleet.unmapped)[:1000]}
        return users | {
            **self.greeting,
            "every": self.policy.every,
            "min_pilots": limits.min_pilots,
            "max_pilots": limits.max_pilots,
            "min_idle": limits.min_idle,
            "trouble": self.trouble[:2000],
            "unfit": list(self.last_plan.unfit)[:1000],
            "paced": self.last_plan.paced,
        }

    # -- states in the batch system ----------------------------------------------------------------------------

    async def _reconcile(self, launches: Sequence[SeenLaunch]) -> list[SeenLaunch]:
        """Report the states of launches in the batch system to the server; returns the planned ones that certainly are not there."""
        now = self.clock.monotonic()
        planned = [launch for launch in launches if launch.state is LaunchState.PLANNED]
        self._unsent &= {launch.id for launch in planned}
        absent = [launch for launch in planned if launch.id in self._unsent]
        asked = [launch for launch in launches if not launch.batch_job and launch.id not in self._unsent]
        known = [launch for launch in launches if launch.batch_job]
        if now < self._reading.until or not (asked or known):
            return absent
        reports: list[LaunchReport] = []
        try:
            found_jobs = await self.reader.find([launch.name for launch in asked]) if asked else {}
            self.passed("found")
            for launch in asked:
                jobs = found_jobs.get(launch.name, ())
                if jobs:
                    reports.append(
                        LaunchReport(launch.id, LaunchState.SUBMITTED, batch_job=await self._only(launch, jobs))
                    )
                elif launch.state is LaunchState.PLANNED and launch.tried >= self.policy.settle:
                    absent.append(launch)
            outcomes = await self.reader.outcome([launch.batch_job for launch in known]) if known else {}
        except PortError as error:
            self._reading.failed(now, str(error))
            self.told("the batch system cannot be polled", {"detail": str(error)})
            outcomes = {}
        self.passed("asked")
        self._forgotten = {
            launch.id: self._forgotten.get(launch.id, now)
            for launch in known
            if outcomes.get(launch.batch_job) == FORGOTTEN
        }
        await self._cancel(known, outcomes)
        for launch in known:
            reports += await self._status(launch, outcomes.get(launch.batch_job))
        silent = [
            outcome for outcome in outcomes.values() if outcome.state is BatchState.UNKNOWN and outcome != FORGOTTEN
        ]
        if known and outcomes and len(silent) == len(outcomes):
            self._reading.failed(
                now, next(iter(outcomes.values())).reason or "the batch system does not report its jobs"
            )
        elif outcomes or not known:
            self._reading.good()
        await self._report(reports, {launch.id: launch for launch in launches})
        return absent

    async def _only(self, launch: SeenLaunch, jobs: Sequence[BatchJob]) -> str:
        """The job of a launch. There can be several only if a submission arrived after it had been given up: the younger ones are cancelled."""
        alive = [job for job in jobs if job.outcome.state not in OVER]
        if len(alive) > 1:
            surplus = [job.id for job in alive[1:]]
            self.told("a launch was submitted twice", {"launch": launch.id, "cancelled": surplus})
            await self.submitter.cancel(surplus)
        return (alive or list(jobs))[0].id

    async def _cancel(self, launches: Sequence[SeenLaunch], outcomes: Mapping[str, BatchOutcome]) -> None:
        """Cancel the jobs whose pilots fell silent, at every poll until the batch system reports that they have ended."""
        doomed = [
            launch.batch_job
            for launch in launches
            if launch.cancel and (outcome := outcomes.get(launch.batch_job)) is not None and outcome.state not in OVER
        ]
        if doomed:
            try:
                await self.submitter.cancel(doomed)
            except PortError as error:
                self.told("batch jobs of silent pilots are not cancelled", {"detail": str(error)})

    async def _status(self, launch: SeenLaunch, outcome: BatchOutcome | None) -> list[LaunchReport]:
        """The report on a launch after its state in the batch system was read."""
        if self.clock.monotonic() - self._forgotten.get(launch.id, inf) >= self.policy.settle:
            # A killed scheduler forgets the jobs that it accepted last; those that ran may continue for a while.
            return [LaunchReport(launch.id, LaunchState.ENDED, end=LaunchEnd("FORGOTTEN", FORGOTTEN.reason, lost=True))]
        if outcome is None or outcome.state in (BatchState.UNKNOWN, BatchState.WAITING):
            return []
        if outcome.state is BatchState.RUNNING:
            return [LaunchReport(launch.id, LaunchState.RUNNING)] if launch.state is LaunchState.SUBMITTED else []
        words = [outcome.reason, *outcome.node_events]
        if not launch.pilot:
            words.append(await self.spool.words(launch.id))
        end = LaunchEnd(
            outcome.word or str(outcome.state),
            "; ".join(filter(None, words))[:2000],
            outcome.exit_code,
            outcome.signal,
            outcome.nodes,
            lost=outcome.state is BatchState.LOST,
        )
        return [LaunchReport(launch.id, LaunchState.ENDED, end=end)]

    async def _report(self, reports: Sequence[LaunchReport], seen: Mapping[str, SeenLaunch]) -> None:
        if not reports:
            return
        answers = await self.api.report(reports)
        self.passed("told")
        for report in reports:
            launch = seen[report.launch]
            facts: dict[str, object] = {"launch": report.launch, "batch_job": report.batch_job or launch.batch_job}
            if report.end is not None:
                pilot = answers[report.launch].pilot
                self._fleet.ended(replace(launch, pilot=pilot, word=report.end.word, since=0.0), self.clock.monotonic())
                facts |= {"word": report.end.word, "reason": report.end.reason, "pilot": pilot}
            self.told(f"launch {report.state}", facts)

    # -- submissions -------------------------------------------------------------------------------------------

    async def _carry_out(self, decided: FleetPlan, absent: Sequence[SeenLaunch]) -> None:
        if self.clock.monotonic() < max(self._submitting.until, self._reading.until):
            return
        again: list[SeenLaunch] = []
        fresh: dict[str, str] = {}
        left = list(absent)
        for size, many in decided.launches.items():
            waiting = [launch for launch in left if launch.size == size][:many]
            again += waiting
            left = [launch for launch in left if launch not in waiting]
            fresh |= {self.ids.claim(): size for _ in range(many - len(waiting))}
        await self._give_up(left)
        if fresh:
            await self.api.plan(fresh)
            self._unsent |= fresh.keys()
            self._fleet.planned(fresh, self.clock.monotonic())
            self.passed("planned")
        wanted = [*(await self._try_again(again)), *fresh.items()]
        refused: set[str] = set()
        for launch, size in wanted:
            if self._submitting.until > self.clock.monotonic():
                break
            if size not in refused and not await self._submit(launch, size):
                refused.add(size)

    async def _give_up(self, launches: Iterable[SeenLaunch]) -> None:
        """Give up launches that are no longer needed and are not at the batch system."""
        ended = [LaunchReport(launch.id, LaunchState.ENDED, end=LaunchEnd(GIVEN_UP)) for launch in launches]
        if ended:
            await self.api.report(ended)
            self._unsent -= {report.launch for report in ended}

    async def _try_again(self, launches: Iterable[SeenLaunch]) -> list[tuple[str, str]]:
        """Record that these are about to be submitted again; those recorded by another agent are left to it."""
        tries = {launch.id: LaunchReport(launch.id, LaunchState.PLANNED, tries=launch.tries + 1) for launch in launches}
        if not tries:
            return []
        answers = await self.api.report(list(tries.values()))
        self.passed("tried again")
        mine = [(launch.id, launch.size) for launch in launches if answers[launch.id].noted]
        self._unsent |= {launch for launch, _ in mine}
        return mine

    async def _submit(self, launch: str, size: str) -> bool:
        """Submit one launch; False when the scheduler refused it."""
        place = await self.spool.secret(launch)
        if place is None:
            _, owner = size_and_owner(size)
            secret = await self.api.enrol(launch, seconds=self.policy.secret_seconds, owner=owner)
            self.passed("enrolled")
            place = await self.spool.keep(launch, secret)
        self.passed("kept")
        job = self.pilot_job(launch, size, place)
        self._unsent.discard(launch)  # from here on it may be at the batch system
        try:
            answer = await self.submitter.submit(job)
        except PortError as error:
            if not isinstance(error, Transient):
                self._unsent.add(launch)
            self._submitting.failed(self.clock.monotonic(), str(error))
            self.told("it is unknown whether a pilot was submitted", {"launch": launch, "detail": str(error)})
            return True
        self.passed("submitted")
        if isinstance(answer, SubmitRefused):
            return await self._refused(launch, size, answer)
        self._submitting.good()
        await self.api.report([LaunchReport(launch, LaunchState.SUBMITTED, batch_job=answer)])
        self.passed("reported")
        self.told("launch submitted", {"launch": launch, "size": size, "batch_job": answer})
        return True

    async def _refused(self, launch: str, size: str, answer: SubmitRefused) -> bool:
        self.told("a pilot was refused", {"launch": launch, "why": answer.why, "words": answer.words})
        if answer.why is not SubmitRefusal.REFUSED:
            self._unsent.add(launch)
            self._submitting.failed(self.clock.monotonic(), f"{answer.why}: {answer.words}")
            return True
        end = LaunchEnd("refused", answer.words[:2000])
        await self.api.report([LaunchReport(launch, LaunchState.ENDED, end=end)])
        self._fleet.refused(launch, size, self.clock.monotonic())
        return False
