"""What all processes of a domain share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import structlog

from forestay.adapters.botocore.signing import S3Signer
from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.httpx.element_files import HttpElementFiles
from forestay.adapters.httpx.notify import HttpxNotify
from forestay.adapters.joserfc.identity import SignedIdentity, signing_keys
from forestay.adapters.joserfc.peer_tokens import Ed25519Tokens
from forestay.adapters.prometheus.metrics import Sample
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.adapters.system.element_files import FolderFiles, XrootdFiles
from forestay.adapters.system.flow_folder import FlowFolder
from forestay.adapters.system.patterns import Patterns
from forestay.adapters.system.results import SharedResults
from forestay.adapters.system.secrets import ReferencedSecrets
from forestay.apps.compose.stores import Stores, open_stores
from forestay.apps.compose.tracing import make_traces
from forestay.apps.config.settings import Settings
from forestay.apps.config.storage_settings import credentials_of, elements_of
from forestay.domain.data.storage_element import Kind
from forestay.domain.exlets.primitive import Action
from forestay.domain.jobs.claim import leave_fault
from forestay.domain.jobs.outbound import Outbound
from forestay.ports.data.storage import ElementFiles
from forestay.ports.documents import SlipStore
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.ports.operations.identity import Identity
from forestay.ports.operations.notify import Notify
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.data.free_elements import FreeElements
from forestay.services.data.keep_catalogue import KeepCatalogue
from forestay.services.data.note_replicas import NoteReplicas
from forestay.services.data.reach_elements import ReachElements
from forestay.services.data.read_results import ReadResults
from forestay.services.exceptions.act.act_on_faults import ActOnFaults
from forestay.services.exceptions.act.act_on_incidents import ActOnIncidents
from forestay.services.exceptions.act.answer_file_faults import AnswerFileFaults
from forestay.services.exceptions.act.mend_data import MendData
from forestay.services.exceptions.act.mend_jobs import MendJobs
from forestay.services.exceptions.act.run_exlet import RunExlet
from forestay.services.exceptions.act.steer_engine_cases import SteerEngineCases
from forestay.services.exceptions.answer_exceptions import AnswerExceptions
from forestay.services.exceptions.decide.decide_faults import DecideFaults
from forestay.services.exceptions.detect.check_constraints import CheckConstraints
from forestay.services.exceptions.engines.order_engines import OrderEngines
from forestay.services.exceptions.handle_faults import HandleFaults
from forestay.services.exceptions.record.keep_audit import KeepAudit
from forestay.services.exceptions.safeguards.count_chains import CountChains
from forestay.services.exceptions.safeguards.keep_approvals import KeepApprovals
from forestay.services.exceptions.safeguards.keep_stops import KeepStops
from forestay.services.exceptions.safeguards.keep_storms import KeepStorms
from forestay.services.exceptions.safeguards.lease_brakes import LeaseBrakes
from forestay.services.flows.flow_ends import FlowEnds
from forestay.services.flows.keep_flows import KeepFlows
from forestay.services.flows.keep_gates import KeepGates
from forestay.services.flows.relay_ends import RelayEnds
from forestay.services.jobs.release_claims import ReleaseClaims
from forestay.services.jobs.steer_jobs import SteerJobs
from forestay.services.operations.trace_jobs import TracedIncidents, TraceJobs
from forestay.services.peers.keep_peers import KeepPeers
from forestay.services.pilots.hear_batch import HearBatch
from forestay.services.pilots.keep_launches import KeepLaunches
from forestay.services.rules.choose_worklets import ChooseWorklets
from forestay.services.rules.keep_exlets import KeepExlets
from forestay.services.rules.keep_rules import KeepRules
from forestay.services.rules.rule_cache import RuleCache
from forestay.services.shared.store_errors import StoreErrors, watched
from forestay.services.shared.write_checked import CheckedWriter

if TYPE_CHECKING:
    from temporalio.client import Interceptor

    from forestay.adapters.opentelemetry.traces import OtlpTraces
    from forestay.adapters.temporal.flow_engine import TemporalFlowEngine

log = structlog.get_logger()

FIRST_OPERATION = "jobs.write"
"""Shown from the start, so that the first error raises a number that was there before."""


@dataclass(slots=True)
class Parts:
    """Everything that the processes share."""

    settings: Settings
    store: JobStore
    pilots: PilotStore
    slips: SlipStore
    incidents: IncidentStore
    faults: HandleFaults
    exceptions: AnswerExceptions
    clock: SystemClock
    ids: RandomIds
    writer: CheckedWriter
    identity: Identity
    notify: Notify
    staging: Outbound
    peers: KeepPeers
    peer_hosts: Outbound
    elements: ReachElements
    catalogue: KeepCatalogue
    audit: KeepAudit
    stops: KeepStops
    brakes: LeaseBrakes
    approvals: KeepApprovals
    release: ReleaseClaims
    batch: HearBatch
    flows: KeepFlows
    exlets: KeepExlets
    folder: FlowFolder
    """The operator's Python flows."""
    engine: TemporalFlowEngine | None
    """None: this domain runs jobs only."""
    relay: RelayEnds | None
    checks: CheckConstraints | None
    """None: this domain runs jobs only."""
    engines: OrderEngines
    """All engines that are not ours."""
    store_errors: StoreErrors
    traces: OtlpTraces | None = None
    """None: nobody wants them."""
    tracing: TraceJobs | None = None
    unreadable: Callable[[], int] = lambda: 0
    """How many documents of the store could not be read."""

    def samples(self) -> Iterator[Sample]:
        """What servers and keepers both do: whoever learns of a fault answers it."""
        brakes, words = self.brakes, "Acts of rules, by what the brakes said"
        yield Sample("forestay_faults_total", "Faults found and answered", self.faults.handled)
        yield Sample("forestay_exceptions_total", "Exceptions other than faults", self.exceptions.answered)
        yield Sample("forestay_acts_total", words, brakes.granted, (("brakes", "granted"),))
        yield Sample("forestay_acts_total", "", brakes.refused, (("brakes", "refused"),))
        words = "Errors of the store that are not about a request"
        for operation in sorted({FIRST_OPERATION, *self.store_errors.counts}):
            count = self.store_errors.counts[operation]
            yield Sample("forestay_store_errors_total", words, count, (("operation", operation),))
        yield Sample("forestay_unreadable_documents_total", "Documents that cannot be read", self.unreadable())


def make_parts(settings: Settings, process: str = "server") -> Parts:
    settings.state.mkdir(parents=True, exist_ok=True)
    clock, ids = SystemClock(), RandomIds()
    store_errors = StoreErrors(
        clock,
        lambda operation, detail, count: log.error("store error", operation=operation, detail=detail, count=count),
    )
    opened = open_stores(settings.store_url)
    stores = Stores(
        jobs=watched(opened.jobs, "jobs", store_errors),
        pilots=watched(opened.pilots, "pilots", store_errors),
        slips=watched(opened.slips, "slips", store_errors),
        incidents=watched(opened.incidents, "incidents", store_errors),
        audit=watched(opened.audit, "audit", store_errors),
    )
    store, slips = stores.jobs, stores.slips
    writer = CheckedWriter(store)
    tracing = None
    if (traces := make_traces(settings, process)) is not None:
        tracing = TraceJobs(traces, clock, settings.otlp_share)
        writer.listeners.append(tracing.notice)
        stores = stores._replace(incidents=cast("IncidentStore", TracedIncidents(stores.incidents, store, tracing)))
    elements = reach_elements(settings)
    engine = relay = None
    if settings.temporal:
        engine = make_engine(settings, [traces.interceptor()] if traces is not None else ())
        relay = RelayEnds(
            store,
            slips,
            engine,
            FlowEnds(ReadResults(SharedResults(settings.outputs), elements)),
            clock,
            every=settings.relay_every,
            patience=settings.relay_patience,
            troubled=lambda text: log.warning("ends wait", detail=text),
        )
        writer.listeners.append(relay.notice)
    flows = KeepFlows(store, clock)
    exlets = KeepExlets(slips, flows, clock, settings.ladder_book)
    # Kept wherever logs are kept: with it, an end of the chain that was cut off is missed.
    audit = KeepAudit(stores.audit, clock, ids, lambda tenant, head: log.info("audit", tenant=tenant, **head._asdict()))
    storms = KeepStorms(
        slips, store, clock, settings.storms, troubled=lambda text: log.warning("canaries wait", detail=text)
    )
    brakes = LeaseBrakes(slips, storms, clock, ids, settings.brakes)
    rules = RuleCache(KeepRules(slips), CelConditions())
    chains = CountChains(stores.incidents, store)
    approvals = KeepApprovals(store, clock, troubled=lambda text: log.error("a request cannot be read", detail=text))
    fault_acts = ActOnFaults(
        stores.incidents, writer, clock, engine=engine, brakes=brakes, audit=audit, chains=chains, approvals=approvals
    )
    release = ReleaseClaims(store, stores.pilots, writer, clock)
    batch = HearBatch(stores.pilots, KeepLaunches(slips, clock), release)
    deciding = DecideFaults(flows, rules, exlets, settings.free_tries, settings.dispatcher)
    faults = HandleFaults(
        store,
        stores.incidents,
        clock,
        Patterns(wrong=lambda text: log.error("a pack has errors", detail=text)).classifier,
        deciding,
        fault_acts,
        stores.pilots,
        batch,
        troubled=lambda text: log.warning("faults wait", detail=text),
    )
    acting = ActOnIncidents(stores.incidents, clock, engine=engine, brakes=brakes, audit=audit, approvals=approvals)
    exceptions = AnswerExceptions(
        stores.incidents,
        store,
        rules,
        exlets,
        acting,
        clock,
        settings.exceptions,
        troubled=lambda text: log.warning("exceptions wait", detail=text),
    )
    parts = Parts(
        settings=settings,
        store=store,
        pilots=stores.pilots,
        slips=slips,
        faults=faults,
        exceptions=exceptions,
        incidents=stores.incidents,
        clock=clock,
        ids=ids,
        writer=writer,
        identity=SignedIdentity(signing_keys(settings.key_file), clock),
        notify=HttpxNotify(settings.callback_hosts),
        staging=Outbound(settings.staging_hosts, setting="staging_hosts"),
        peers=KeepPeers(slips, clock, Ed25519Tokens(settings.peer_key_file, clock)),
        peer_hosts=Outbound(settings.peer_hosts, setting="peer_hosts"),
        elements=elements,
        catalogue=KeepCatalogue(slips, clock, elements.elements),
        audit=audit,
        stops=KeepStops(slips, clock),
        brakes=brakes,
        approvals=approvals,
        release=release,
        batch=batch,
        flows=flows,
        exlets=exlets,
        folder=FlowFolder(settings.flows),
        engine=engine,
        relay=relay,
        checks=CheckConstraints(exceptions, flows, engine, clock) if engine is not None else None,
        engines=OrderEngines(
            slips,
            store,
            clock,
            # Who carries exlets out in workflows can wait for an engine; a server cannot.
            patience=20.0 if engine is not None else 0.0,
            answered=acting.go_on,
            troubled=lambda text: log.warning("answers of engines wait", detail=text),
        ),
        store_errors=store_errors,
        traces=traces,
        tracing=tracing,
        unreadable=opened.unreadable,
    )
    if relay is not None:
        relay.checks = parts.checks
    fault_acts.exlets = acting.exlets = run_exlet(parts, SteerJobs(store, writer, clock, leave_fault))
    mend_data = fault_acts.exlets.others[Action.RESTAGE]
    if isinstance(mend_data, MendData):
        deciding.files = AnswerFileFaults(mend_data)
    return parts


def make_engine(settings: Settings, interceptors: Sequence[Interceptor] = ()) -> TemporalFlowEngine:
    """Temporal as the settings name it, not yet connected."""
    # Takes a second to import, so only those pay for it who run cases.
    from forestay.adapters.temporal.flow_engine import Limits, TemporalFlowEngine
    from forestay.adapters.temporal.security import Security

    limits = Limits(settings.history_limit, settings.look_after)
    security = Security(
        ca=settings.temporal_ca,
        certificate=settings.temporal_certificate,
        certificate_key=settings.temporal_certificate_key,
        server_name=settings.temporal_server_name,
        keys=settings.temporal_keys,
    )
    return TemporalFlowEngine(
        settings.temporal,
        namespace=settings.temporal_namespace,
        task_queue=settings.task_queue,
        limits=limits,
        interceptors=interceptors,
        security=security,
    )


def reach_elements(settings: Settings) -> ReachElements:
    """The storage elements of the settings, and everything that reaches them."""
    elements = elements_of(settings.storage)
    bases = [door.base for one in elements.values() for door in one.doors if door.kind in (Kind.HTTP, Kind.S3)]
    web = HttpElementFiles(Outbound.only(*bases, setting="storage"))
    own, xrootd = FolderFiles(), XrootdFiles()
    files: dict[Kind, ElementFiles] = {Kind.HTTP: web, Kind.S3: web, Kind.FILE: own, Kind.ROOT: xrootd}
    return ReachElements(elements, S3Signer(credentials_of(settings.storage), ReferencedSecrets()), files)


def run_exlet(parts: Parts, steer: SteerJobs) -> RunExlet:
    """The service that carries exlets out, for any process."""
    settings = parts.settings
    mend = MendJobs(parts.writer, steer, parts.clock, settings.ladder_book, settings.budgets.budgets)
    gates = KeepGates(parts.slips)
    made = RunExlet(
        parts.incidents, parts.store, parts.engine, parts.flows, gates, mend, parts.clock, checks=parts.checks
    )
    mend_data = MendData(
        mend,
        parts.store,
        parts.pilots,
        parts.catalogue,
        NoteReplicas(parts.catalogue, parts.store, parts.clock),
        FreeElements(parts.store, parts.elements),
        parts.clock,
    )
    made.others = {Action.RESTAGE: mend_data, Action.FREE_SPACE: mend_data, Action.AVOID_HOST: mend_data}
    made.elsewhere = parts.engines
    made.abroad = SteerEngineCases(parts.engines, settings.ladder_book, settings.budgets.budgets)
    return made


def choose_worklets(parts: Parts) -> ChooseWorklets | None:
    """Who chooses for tasks that are bound late; None: this domain runs no cases."""
    if parts.engine is None:
        return None
    return ChooseWorklets(parts.exceptions.rules, parts.exlets, parts.flows, parts.engine)
