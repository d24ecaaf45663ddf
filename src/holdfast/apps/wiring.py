"""Puts the parts together: the one place that names adapters."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import structlog

from holdfast.adapters.cel.conditions import CelConditions
from holdfast.adapters.cel.sandbox import CelSandbox
from holdfast.adapters.httpx.notify import HttpxNotify
from holdfast.adapters.joserfc.identity import SignedIdentity, signing_key
from holdfast.adapters.prometheus.metrics import Sample
from holdfast.adapters.system.clock import RandomIds, SystemClock
from holdfast.adapters.system.file_lists import SharedFiles
from holdfast.adapters.system.flow_folder import FlowFolder
from holdfast.adapters.system.patterns import Patterns
from holdfast.adapters.system.results import SharedResults
from holdfast.apps.settings import Settings
from holdfast.domain.jobs.claim import leave_fault
from holdfast.domain.jobs.outbound import Outbound
from holdfast.ports.audit import AuditStore
from holdfast.ports.errors import Permanent, Transient
from holdfast.ports.identity import Identity
from holdfast.ports.incident_store import IncidentStore
from holdfast.ports.job_store import JobStore
from holdfast.ports.notify import Notify
from holdfast.ports.pilot_store import PilotStore
from holdfast.ports.slip_store import SlipStore
from holdfast.services.bind_worklets import BindWorklets
from holdfast.services.claim_jobs import ClaimJobs
from holdfast.services.decide_faults import DecideFaults
from holdfast.services.edit_rules import EditRules
from holdfast.services.end_jobs import EndJobs
from holdfast.services.find_outputs import FindOutputs
from holdfast.services.flow_ends import FlowEnds
from holdfast.services.follow_jobs import FollowJobs
from holdfast.services.handle_faults import HandleFaults
from holdfast.services.hold_channels import HoldChannels
from holdfast.services.keep_audit import KeepAudit
from holdfast.services.keep_beats import KeepBeats
from holdfast.services.keep_flows import KeepFlows
from holdfast.services.keep_gates import KeepGates
from holdfast.services.keep_listings import KeepListings
from holdfast.services.keep_rules import KeepRules
from holdfast.services.keep_stops import KeepStops
from holdfast.services.keep_storms import KeepStorms
from holdfast.services.lease_brakes import LeaseBrakes
from holdfast.services.mend_jobs import MendJobs
from holdfast.services.open_sessions import OpenSessions
from holdfast.services.pass_orders import PassOrders
from holdfast.services.read_outputs import ReadOutputs
from holdfast.services.relay_ends import RelayEnds
from holdfast.services.release_claims import ReleaseClaims
from holdfast.services.rule_cache import RuleCache
from holdfast.services.run_exlet import RunExlet
from holdfast.services.send_callbacks import SendCallbacks
from holdfast.services.steer_jobs import SteerJobs
from holdfast.services.submit_flow_jobs import SubmitFlowJobs
from holdfast.services.submit_jobs import SubmitJobs
from holdfast.services.watch_forgotten import WatchForgotten
from holdfast.services.watch_orphans import WatchOrphans
from holdfast.services.watch_runtimes import WatchRuntimes
from holdfast.services.write_checked import CheckedWriter

if TYPE_CHECKING:
    from holdfast.adapters.temporal.flow_engine import TemporalFlowEngine

log = structlog.get_logger()


class Stores(NamedTuple):
    """The stores of one domain; opening and closing the job store does so for all."""

    jobs: JobStore
    pilots: PilotStore
    slips: SlipStore
    incidents: IncidentStore
    audit: AuditStore


def open_stores(url: str) -> Stores:
    """The stores that a URL names, not yet connected. Each kind takes a second to import, so a process pays for its own only."""
    scheme = url.split(":", 1)[0].split("+")[0]
    if scheme in ("sqlite", "postgresql"):
        from holdfast.adapters.sql.audit import SqlAuditStore
        from holdfast.adapters.sql.incident_store import SqlIncidentStore
        from holdfast.adapters.sql.job_store import SqlJobStore
        from holdfast.adapters.sql.pilot_store import SqlPilotStore
        from holdfast.adapters.sql.slip_store import SqlSlipStore

        sql = SqlJobStore(url)
        base = sql.database
        return Stores(sql, SqlPilotStore(base), SqlSlipStore(base), SqlIncidentStore(base), SqlAuditStore(base))
    if scheme in ("opensearch", "opensearch+https", "opensearch+http"):
        from holdfast.adapters.opensearch.audit import OpenSearchAuditStore
        from holdfast.adapters.opensearch.incident_store import OpenSearchIncidentStore
        from holdfast.adapters.opensearch.job_store import OpenSearchJobStore
        from holdfast.adapters.opensearch.pilot_store import OpenSearchPilotStore
        from holdfast.adapters.opensearch.slip_store import OpenSearchSlipStore

        parts = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        transport = "https" if url.startswith("opensearch+https") else "http"
        replicas = int(options.get("replicas", "0"))
        search = OpenSearchJobStore(
            [f"{transport}://{host}" for host in parts.netloc.rpartition("@")[2].split(",")],
            prefix=parts.path.strip("/") or "holdfast",
            replicas=replicas,
            shards=int(options.get("shards", "1")),
            wait_for_active_shards=options.get("wait_for_active_shards", "2" if replicas else "1"),
            timeout=float(options.get("timeout", "5")),
        )
        cluster = search.cluster
        return Stores(
            search,
            OpenSearchPilotStore(cluster),
            OpenSearchSlipStore(cluster),
            OpenSearchIncidentStore(cluster),
            OpenSearchAuditStore(cluster),
        )
    raise Permanent(
        f"store {scheme}:… is not known; use sqlite:///FILE, postgresql://… or opensearch://HOST:PORT/PREFIX"
    )


@dataclass(slots=True)
class Parts:
    """Everything that the processes share."""

    settings: Settings
    store: JobStore
    pilots: PilotStore
    slips: SlipStore
    incidents: IncidentStore
    faults: HandleFaults
    clock: SystemClock
    ids: RandomIds
    writer: CheckedWriter
    identity: Identity
    notify: Notify
    staging: Outbound
    audit: KeepAudit
    stops: KeepStops
    brakes: LeaseBrakes
    release: ReleaseClaims
    flows: KeepFlows
    folder: FlowFolder
    """The operator's Python flows."""
    engine: TemporalFlowEngine | None
    """None: this domain runs jobs only."""
    relay: RelayEnds | None


def make_parts(settings: Settings) -> Parts:
    settings.state.mkdir(parents=True, exist_ok=True)
    stores = open_stores(settings.store_url)
    store, slips = stores.jobs, stores.slips
    clock, ids = SystemClock(), RandomIds()
    writer = CheckedWriter(store)
    engine = relay = None
    if settings.temporal:
        # Takes a second to import, so only those pay for it who run cases.
        from holdfast.adapters.temporal.flow_engine import Limits, TemporalFlowEngine

        limits = Limits(settings.history_limit, settings.look_after)
        engine = TemporalFlowEngine(
            settings.temporal, namespace=settings.temporal_namespace, task_queue=settings.task_queue, limits=limits
        )
        relay = RelayEnds(
            store,
            slips,
            engine,
            FlowEnds(SharedResults(settings.outputs)),
            clock,
            every=settings.relay_every,
            patience=settings.relay_patience,
            troubled=lambda text: log.warning("ends wait", detail=text),
        )
        writer.listeners.append(relay.notice)
    flows = KeepFlows(store, clock)
    # Kept wherever logs are kept: with it, an end of the chain that was cut off is missed.
    audit = KeepAudit(stores.audit, clock, ids, lambda tenant, head: log.info("audit", tenant=tenant, **head._asdict()))
    storms = KeepStorms(
        slips, store, clock, settings.storms, troubled=lambda text: log.warning("canaries wait", detail=text)
    )
    brakes = LeaseBrakes(slips, storms, clock, ids, settings.brakes)
    faults = HandleFaults(
        store,
        stores.incidents,
        writer,
        clock,
        Patterns(wrong=lambda text: log.error("a pack has errors", detail=text)).classifier,
        DecideFaults(flows, RuleCache(KeepRules(slips), CelConditions()), settings.free_tries),
        engine=engine,
        brakes=brakes,
        audit=audit,
        troubled=lambda text: log.warning("faults wait", detail=text),
    )
    parts = Parts(
        settings=settings,
        store=store,
        pilots=stores.pilots,
        slips=slips,
        faults=faults,
        incidents=stores.incidents,
        clock=clock,
        ids=ids,
        writer=writer,
        identity=SignedIdentity(signing_key(settings.key_file), clock),
        notify=HttpxNotify(settings.callback_hosts),
        staging=Outbound(settings.staging_hosts, setting="staging_hosts"),
        audit=audit,
        stops=KeepStops(slips, clock),
        brakes=brakes,
        release=ReleaseClaims(store, stores.pilots, writer, clock),
        flows=flows,
        folder=FlowFolder(settings.flows),
        engine=engine,
        relay=relay,
    )
    faults.exlets = run_exlet(parts, SteerJobs(store, writer, clock, leave_fault))
    return parts


def run_exlet(parts: Parts, steer: SteerJobs) -> RunExlet:
    """The service that carries exlets out, for any process."""
    mend = MendJobs(parts.writer, steer, parts.clock)
    gates = KeepGates(parts.slips)
    return RunExlet(parts.incidents, parts.store, parts.engine, parts.flows, gates, mend, parts.clock)


class ServerParts:
    """The services of one server, joined."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        store, clock, writer = parts.store, parts.clock, parts.writer
        self.claims = ClaimJobs(store, writer, clock, parts.ids)
        self.ends = EndJobs(store, writer, clock, faulted=parts.faults.handle)
        self.follow = FollowJobs(store, clock, alone=lambda: len(self.beats.alive) <= 1)
        self.submit = SubmitJobs(store, clock, parts.ids, offered=[self.claims.offer])
        self.steer = SteerJobs(store, writer, clock, leave_fault)
        self.beats = KeepBeats(
            parts.pilots, clock, server=self.name, url=parts.settings.public_url, shared_out=self.claims.own
        )
        self.channels = HoldChannels(
            store,
            parts.pilots,
            self.beats,
            parts.release,
            clock,
            granted=self.ends.held_by,
            troubled=lambda text: log.warning("deaths wait", detail=text),
        )
        self.outputs = ReadOutputs(writer)
        self.sessions = OpenSessions(parts.slips, clock, parts.ids, parts.identity)
        self.case_outputs = FindOutputs(store, SharedResults(parts.settings.outputs))
        self.worklets = BindWorklets(parts.slips, parts.flows)
        self.gates = KeepGates(parts.slips, changed=self.claims.windows.look_anew)
        self.claims.windows.gated = self.gates.gated
        self.conditions, self.trying = CelConditions(), CelSandbox()
        self.rules = KeepRules(parts.slips)
        self.rule_cache = RuleCache(KeepRules(parts.slips), self.conditions)
        self.edit_rules = EditRules(self.rules, self.conditions, self.trying, clock, parts.ids.job)
        writer.listeners += [self.claims.notice, self.follow.notice, self.outputs.notice]

    def loops(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        loops = {
            "claims": self.claims.run,
            "ends": self.ends.run,
            "follow": self.follow.run,
            "beats": self.beats.run,
            "channels": self.channels.run,
            "gates": self.gates.run,
            "rules": self.rule_cache.run,
        }
        if self.parts.relay is not None:
            loops["hints"] = self.parts.relay.run_hints
        return loops

    def samples(self) -> Iterator[Sample]:
        """What this server has done, for `/metrics`."""
        desk, tally = self.claims.tally, self.parts.writer.tally
        yield Sample("holdfast_claims_granted_total", "Claims given to pilots", desk.granted)
        yield Sample("holdfast_claims_lost_total", "Claims written in vain", desk.lost)
        yield Sample("holdfast_claim_bulks_total", "Writes of claims", desk.bulks)
        yield Sample("holdfast_window_pages_total", "Pages of candidates read", desk.pages)
        yield Sample("holdfast_lane_looks_total", "Looks for lanes with work", desk.looks)
        yield Sample("holdfast_requests_waiting", "Pilots waiting for work", self.claims.waiting)
        yield Sample("holdfast_writes_total", "Version-checked writes", tally.written, (("result", "written"),))
        yield Sample("holdfast_writes_total", "", tally.conflicts, (("result", "conflict"),))
        yield Sample("holdfast_writes_total", "", tally.unknown, (("result", "unknown"),))
        yield Sample("holdfast_writes_confirmed_total", "Writes settled by a confirming one", tally.confirmed)
        yield Sample("holdfast_channels_open", "Pilots with a channel here", self.channels.open_count)
        yield Sample("holdfast_pilot_deaths_total", "Pilots whose channel closed for good", self.channels.deaths)
        yield Sample("holdfast_claims_released_total", "Claims taken away", self.parts.release.released)
        yield Sample("holdfast_servers_alive", "Servers seen alive", len(self.beats.alive))


class KeeperParts:
    """The services of one keeper, joined."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        settings = parts.settings
        self.orphans = WatchOrphans(
            parts.store,
            parts.pilots,
            parts.clock,
            parts.release,
            lease=settings.lease,
            every=settings.scan_every,
            alarmed=lambda text: log.error("many orphans", detail=text),
        )
        self.runtimes = WatchRuntimes(
            parts.store,
            parts.clock,
            raised=lambda job: log.warning("past its expected runtime", job=job.id, name=job.name, owner=job.owner),
        )
        self.forgotten = WatchForgotten(
            parts.store,
            parts.clock,
            raised=lambda job: log.error(
                "a job failed that nobody waits for", job=job.id, name=job.name, owner=job.owner
            ),
        )
        self.callbacks = SendCallbacks(parts.store, parts.writer, parts.clock, parts.notify)
        self.orders: PassOrders | None = None
        if parts.engine is not None:
            self.orders = PassOrders(
                KeepGates(parts.slips),
                parts.engine,
                troubled=lambda text: log.warning("verbs for all cases wait", detail=text),
            )

    def loops(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        loops = {
            "orphans": self.orphans.run,
            "runtimes": self.runtimes.run,
            "forgotten": self.forgotten.run,
            "callbacks": self.callbacks.run,
            "faults": self.parts.faults.run,
            "canaries": self.parts.brakes.storms.run,
        }
        if self.parts.relay is not None:
            loops["relay"] = self.parts.relay.run
        if self.orders is not None:
            loops["orders"] = self.orders.run
        return loops

    def samples(self) -> Iterator[Sample]:
        yield Sample("holdfast_orphans_silent_total", "Claims of silent pilots released", self.orphans.silent_found)
        yield Sample("holdfast_orphans_forgotten_total", "Claims unknown to their pilots", self.orphans.forgotten_found)
        yield Sample("holdfast_orphan_alarms_total", "Scans stopped: too many at once", self.orphans.alarms)
        yield Sample("holdfast_runtime_alerts_total", "Attempts past their expected runtime", self.runtimes.alerts)
        yield Sample("holdfast_forgotten_alerts_total", "Failed jobs that nobody waits for", self.forgotten.alerts)
        yield Sample("holdfast_callbacks_total", "Notifications", self.callbacks.sent, (("result", "taken"),))
        yield Sample("holdfast_callbacks_total", "", self.callbacks.failed, (("result", "failed"),))
        yield Sample("holdfast_faults_total", "Faults found and answered", self.parts.faults.handled)
        brakes = self.parts.brakes
        yield Sample(
            "holdfast_acts_total", "Acts of rules, by what the brakes said", brakes.granted, (("brakes", "granted"),)
        )
        yield Sample("holdfast_acts_total", "", brakes.refused, (("brakes", "refused"),))
        relay = self.parts.relay
        if relay is not None:
            yield Sample("holdfast_relay_signals_total", "Signals to cases and shards", relay.told)
            yield Sample("holdfast_relay_ends_total", "Ended jobs", relay.delivered, (("result", "delivered"),))
            yield Sample("holdfast_relay_ends_total", "", relay.undeliverable, (("result", "undeliverable"),))


class WorkerParts:
    """The services of one worker, joined; in one process with a server, a new job is offered to its pilots at once."""

    def __init__(self, parts: Parts, server: ServerParts | None = None) -> None:
        if parts.engine is None or parts.relay is None:
            raise Permanent("a worker needs Temporal: set HOLDFAST_TEMPORAL to its HOST:PORT")
        self.parts = parts
        self.engine = parts.engine
        self.relay = parts.relay
        submit = server.submit if server else SubmitJobs(parts.store, parts.clock, parts.ids)
        steer = SteerJobs(parts.store, parts.writer, parts.clock, leave_fault)
        settings = parts.settings
        shared = SharedFiles(settings.flow_files, hidden=(settings.state,))
        self.listings = KeepListings(parts.store, parts.clock, shared, every=settings.watch_every)
        self.worklets = BindWorklets(parts.slips, parts.flows)
        outputs = FindOutputs(parts.store, parts.relay.ends.results)
        self.jobs = SubmitFlowJobs(
            parts.store,
            parts.slips,
            parts.flows,
            submit,
            steer,
            parts.relay.ends,
            self.listings,
            outputs,
            parts.staging,
            KeepGates(parts.slips),
        )
        self.exlets = run_exlet(parts, steer)

    def loops(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """A worker in a process of its own also sees ends: those of jobs that it cancels or continues."""
        return {"worker": self.run, "hints": self.relay.run_hints}

    async def run(self) -> None:
        """Work until cancelled; while Temporal cannot be reached, wait for it."""
        from holdfast.adapters.temporal.activities import Activities
        from holdfast.adapters.temporal.exlet_activities import ExletActivities
        from holdfast.adapters.temporal.worker import run_worker

        while True:
            try:
                client = await self.engine.client()
                break
            except Transient as error:
                log.warning("the worker waits", detail=str(error))
                await asyncio.sleep(1.0)
        activities = Activities(
            client, self.parts.store, self.jobs, self.listings, self.worklets, ExletActivities(self.exlets)
        )
        python = self.parts.settings.flows is not None
        await run_worker(client, task_queue=self.engine.task_queue, activities=activities, python=python)


async def run_loops(loops: dict[str, Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run service loops for ever. One that breaks is a bug: it is told, and started again."""

    async def keep(name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await loop()
            except Exception:
                log.exception("a loop broke; it starts again", loop=name)
                await asyncio.sleep(1.0)

    async with asyncio.TaskGroup() as group:
        for name, loop in loops.items():
            group.create_task(keep(name, loop), name=name)


async def stop(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it is gone."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until_told() -> None:
    """Wait for SIGTERM or SIGINT."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()
