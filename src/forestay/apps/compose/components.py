"""What all processes of a domain share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import structlog

from forestay.adapters.botocore.signing import S3Signer
from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.httpx.callback_transport import HttpxCallbackTransport
from forestay.adapters.httpx.element_files import HttpElementFiles
from forestay.adapters.joserfc.identity import SignedIdentity, signing_keys
from forestay.adapters.joserfc.peer_tokens import Ed25519Tokens
from forestay.adapters.prometheus.metrics import Sample
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.adapters.system.element_files import FolderFiles, XrootdFiles
from forestay.adapters.system.flow_folder import FlowFolder
from forestay.adapters.system.patterns import Patterns
from forestay.adapters.system.results import SharedResults
from forestay.adapters.system.secrets import ReferencedSecrets
from forestay.apps.compose.external_sources import build_external_values
from forestay.apps.compose.stores import Stores, open_stores
from forestay.apps.compose.tracing import make_traces
from forestay.apps.config.settings import Settings
from forestay.apps.config.storage_settings import credentials_of, elements_of
from forestay.apps.flow_formats import InstalledFormats
from forestay.domain.data.storage_element import AccessProtocol
from forestay.domain.jobs.claim import leave_failure
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.domain.playbooks.action import ActionKind
from forestay.ports.data.storage import ElementFiles
from forestay.ports.documents import DocumentStore
from forestay.ports.errors import Permanent
from forestay.ports.exceptions.classifiers import CauseClassifiers
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.ports.operations.callback_transport import CallbackTransport
from forestay.ports.operations.identity import Identity
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.data.replica_health import ReplicaHealth
from forestay.services.data.result_reader import ResultReader
from forestay.services.data.storage_access import StorageAccess
from forestay.services.data.storage_cleaner import StorageCleaner
from forestay.services.data.stored_catalogue import StoredCatalogue
from forestay.services.exceptions.act.action_executor import ActionExecutor
from forestay.services.exceptions.act.data_actions import DataActions
from forestay.services.exceptions.act.domain_actions import DomainActions
from forestay.services.exceptions.act.engine_actions import EngineActions
from forestay.services.exceptions.act.file_failure_policy import FileFailurePolicy
from forestay.services.exceptions.act.job_actions import JobActions
from forestay.services.exceptions.act.output_remaker import OutputRemaker
from forestay.services.exceptions.act.playbook_runner import Performer, PlaybookRunner
from forestay.services.exceptions.decide.decider import Decider
from forestay.services.exceptions.detect.constraint_checker import ConstraintChecker
from forestay.services.exceptions.detect.failure_detector import FailureDetector, FailureHistory
from forestay.services.exceptions.detect.taught_patterns import TaughtPatterns
from forestay.services.exceptions.engines.engine_commands import EngineCommands
from forestay.services.exceptions.engines.engine_replies import EngineReplies
from forestay.services.exceptions.failure_review import FailureReview
from forestay.services.exceptions.pipeline import ExceptionPipeline
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.exceptions.record.decision_log import DecisionLog
from forestay.services.exceptions.recovery import ExceptionRecovery
from forestay.services.exceptions.safeguards.action_limits import ActionLimits, EmergencyStop, StormTracker
from forestay.services.exceptions.safeguards.approvals import Approvals
from forestay.services.exceptions.safeguards.safeguards import ChainCounter, Safeguards
from forestay.services.flows.compensation_library import CompensationLibrary
from forestay.services.flows.completion_facts import CompletionFacts
from forestay.services.flows.completion_relay import CompletionRelay
from forestay.services.flows.external_events import ExternalEvents
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.flow_suspensions import FlowSuspensions
from forestay.services.flows.questions import Questions
from forestay.services.flows.run_context import RunStates
from forestay.services.flows.run_schedules import RunSchedules
from forestay.services.flows.run_starter import RunStarter
from forestay.services.jobs.claim_releaser import ClaimReleaser
from forestay.services.jobs.job_control import JobControl
from forestay.services.jobs.job_submitter import JobSubmitter, NewJobListener
from forestay.services.operations.job_tracer import JobTracer, TracedIncidentStore
from forestay.services.peers.peer_registry import PeerRegistry
from forestay.services.pilots.batch_status import BatchStatus
from forestay.services.pilots.pilot_launches import PilotLaunches
from forestay.services.rules.playbook_store import PlaybookStore
from forestay.services.rules.rule_store import RuleCache, RuleStore
from forestay.services.rules.worklet_selector import WorkletSelector
from forestay.services.shared.checked_writer import CheckedWriter
from forestay.services.shared.store_errors import StoreErrors, watched

if TYPE_CHECKING:
    from temporalio.client import Interceptor

    from forestay.adapters.opentelemetry.traces import OtlpTraces
    from forestay.adapters.temporal.flow_engine import TemporalFlowEngine

log = structlog.get_logger()

FIRST_OPERATION = "jobs.write"
"""Exported from the start, so that the first error raises an existing counter."""
DATA_ACTIONS = (ActionKind.RESTAGE, ActionKind.FREE_SPACE, ActionKind.AVOID_HOST)
"""Carried out with the catalogue and the pilots' caches."""
DOMAIN_ACTIONS = (ActionKind.RESUBMIT, ActionKind.REREGISTER)
"""Carried out with the relays to other domains."""


@dataclass(slots=True)
class Components:
    """Everything that the processes share."""

    settings: Settings
    store: JobStore
    pilots: PilotStore
    documents: DocumentStore
    incidents: IncidentStore
    pipeline: ExceptionPipeline
    recovery: ExceptionRecovery
    classifiers: CauseClassifiers
    taught: TaughtPatterns
    review: FailureReview
    clock: SystemClock
    ids: RandomIds
    writer: CheckedWriter
    identity: Identity
    notify: CallbackTransport
    staging: OutboundPolicy
    peers: PeerRegistry
    peer_hosts: OutboundPolicy
    elements: StorageAccess
    catalogue: StoredCatalogue
    data_actions: DataActions
    remaker: OutputRemaker
    audit: AuditLog
    stops: EmergencyStop
    safeguards: ActionLimits
    approvals: Approvals
    release: ClaimReleaser
    batch: BatchStatus
    flows: FlowStore
    questions: Questions
    events: ExternalEvents
    formats: InstalledFormats
    compensations: CompensationLibrary
    playbooks: PlaybookStore
    playbook_runner: PlaybookRunner
    folder: FlowFolder
    """The operator's Python flows."""
    engine: TemporalFlowEngine | None
    """None: this domain runs jobs only."""
    relay: CompletionRelay | None
    checks: ConstraintChecker | None
    """None: this domain runs jobs only."""
    engines: EngineCommands
    """All engines that are not ours."""
    engine_replies: EngineReplies
    store_errors: StoreErrors
    traces: OtlpTraces | None = None
    """None: tracing is not configured."""
    tracing: JobTracer | None = None
    unreadable: Callable[[], int] = lambda: 0
    """Returns how many documents of the store could not be read."""

    def new_job_listeners(self) -> list[NewJobListener]:
        """The listeners for new jobs that trace them."""
        return [] if self.tracing is None else [self.tracing]

    def schedules(self) -> RunSchedules:
        """`Permanent` in a domain that runs jobs only."""
        from forestay.adapters.temporal.schedules import TemporalSchedules

        if self.engine is None:
            raise Permanent("schedules are not available: this server was started without Temporal")
        starter = RunStarter(self.flows, self.engine, self.ids, self.checks)
        return RunSchedules(TemporalSchedules(self.engine), starter, self.clock)

    def current_trace(self) -> str:
        """The current trace of this process; empty without one."""
        return "" if self.traces is None else self.traces.current()

    def samples(self) -> Iterator[Sample]:
        """The metrics of work that both servers and reconcilers do: whichever learns of a failure answers it."""
        safeguards, words = self.safeguards, "Actions of rules, by the result of the safeguards"
        yield Sample("forestay_failures_total", "Failures detected and answered", self.pipeline.failures)
        yield Sample("forestay_exceptions_total", "Exceptions other than failures", self.pipeline.exceptions)
        yield Sample("forestay_acts_total", words, safeguards.granted, (("safeguards", "granted"),))
        yield Sample("forestay_acts_total", "", safeguards.refused, (("safeguards", "refused"),))
        words = "Store errors that no request caused"
        for operation in sorted({FIRST_OPERATION, *self.store_errors.counts}):
            count = self.store_errors.counts[operation]
            yield Sample("forestay_store_errors_total", words, count, (("operation", operation),))
        yield Sample("forestay_unreadable_documents_total", "Documents that cannot be read", self.unreadable())


def make_components(settings: Settings, process: str = "server") -> Components:
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
        documents=watched(opened.documents, "documents", store_errors),
        incidents=watched(opened.incidents, "incidents", store_errors),
        audit=watched(opened.audit, "audit", store_errors),
    )
    store, documents = stores.jobs, stores.documents
    writer = CheckedWriter(store)
    tracing = None
    if (traces := make_traces(settings, process)) is not None:
        tracing = JobTracer(traces, clock, settings.otlp_share)
        writer.listeners.append(tracing)
        stores = stores._replace(incidents=cast("IncidentStore", TracedIncidentStore(stores.incidents, store, tracing)))
    elements = build_storage_access(settings)
    engine = None
    if settings.temporal:
        engine = make_engine(settings, [traces.interceptor()] if traces is not None else ())
    formats = InstalledFormats()
    flows = FlowStore(store, clock, formats)
    playbooks = PlaybookStore(documents, flows, clock, settings.retry_policy_table)
    # Stored wherever logs are stored: it reveals if the end of the chain was cut off.
    audit = AuditLog(stores.audit, clock, ids, lambda tenant, head: log.info("audit", tenant=tenant, **head._asdict()))
    storms = StormTracker(
        documents, store, clock, settings.storms, troubled=lambda text: log.warning("canaries wait", detail=text)
    )
    limits = ActionLimits(documents, storms, clock, ids, settings.safeguards)
    approvals = Approvals(store, clock, troubled=lambda text: log.error("a request cannot be read", detail=text))
    release = ClaimReleaser(store, stores.pilots, writer, clock)
    batch = BatchStatus(stores.pilots, PilotLaunches(documents, clock), release)
    catalogue = StoredCatalogue(documents, clock, elements.elements)
    steer = JobControl(store, writer, clock, leave_failure)
    data_actions = DataActions(
        JobActions(writer, steer, clock, settings.retry_policy_table, settings.budgets.budgets),
        store,
        stores.pilots,
        catalogue,
        ReplicaHealth(catalogue, store, clock),
        StorageCleaner(store, elements),
        clock,
    )
    remaker = OutputRemaker(
        data_actions,
        JobSubmitter(store, clock, ids, documents=documents),
        documents,
        writer,
        SharedResults(settings.outputs),
        troubled=lambda text: log.warning("jobs that wait for remakes cannot be continued yet", detail=text),
    )
    # A process that carries playbooks out in workflows can wait for an engine; a server cannot.
    engines = EngineCommands(documents, store, clock, patience=20.0 if engine is not None else 0.0)
    playbook_runner = PlaybookRunner(
        stores.incidents,
        store,
        engine,
        flows,
        FlowSuspensions(documents),
        data_actions.jobs,
        clock,
        others=_performers(data_actions, remaker),
        elsewhere=engines,
        abroad=EngineActions(engines, settings.retry_policy_table, settings.budgets.budgets),
    )
    taught = TaughtPatterns(documents, clock)
    classifiers = Patterns(wrong=lambda text: log.error("a pack has errors", detail=text), site=taught)
    decision_log = DecisionLog(stores.incidents, audit, clock)
    pipeline = ExceptionPipeline(
        store,
        stores.incidents,
        FailureDetector(
            store,
            stores.pilots,
            batch,
            classifiers,
            FailureHistory(
                stores.incidents, documents, RunStates(engine, clock), build_external_values(settings, clock), clock
            ),
            flows,
        ),
        Decider(
            RuleCache(RuleStore(documents), CelConditions()),
            playbooks,
            FileFailurePolicy(data_actions, remaker),
            settings.exceptions,
            settings.dispatcher,
            settings.free_tries,
        ),
        Safeguards(limits, ChainCounter(stores.incidents, store), approvals),
        ActionExecutor(decision_log, writer, playbook_runner, engine, storms, clock),
        decision_log,
        clock,
        troubled=lambda text: log.warning("exceptions wait", detail=text),
    )
    review = FailureReview(pipeline, taught)
    checks = relay = None
    if engine is not None:
        checks = ConstraintChecker(pipeline, flows, engine, clock)
        relay = CompletionRelay(
            store,
            documents,
            engine,
            CompletionFacts(ResultReader(SharedResults(settings.outputs), elements)),
            clock,
            checks,
            every=settings.relay_every,
            patience=settings.relay_patience,
            troubled=lambda text: log.warning("ends wait", detail=text),
        )
        writer.listeners.append(relay)
    return Components(
        settings=settings,
        store=store,
        pilots=stores.pilots,
        documents=documents,
        pipeline=pipeline,
        recovery=ExceptionRecovery(pipeline, store, stores.incidents, clock, review),
        classifiers=classifiers,
        taught=taught,
        review=review,
        incidents=stores.incidents,
        clock=clock,
        ids=ids,
        writer=writer,
        identity=SignedIdentity(signing_keys(settings.key_file), clock),
        notify=HttpxCallbackTransport(settings.callback_hosts, formats),
        staging=OutboundPolicy(settings.staging_hosts, setting="staging_hosts"),
        peers=PeerRegistry(documents, clock, Ed25519Tokens(settings.peer_key_file, clock)),
        peer_hosts=OutboundPolicy(settings.peer_hosts, setting="peer_hosts"),
        elements=elements,
        catalogue=catalogue,
        data_actions=data_actions,
        remaker=remaker,
        audit=audit,
        stops=EmergencyStop(documents, clock),
        safeguards=limits,
        approvals=approvals,
        release=release,
        batch=batch,
        flows=flows,
        questions=Questions(documents, clock),
        events=ExternalEvents(
            documents, clock, ids, engine, troubled=lambda text: log.warning("events wait", detail=text)
        ),
        formats=formats,
        compensations=CompensationLibrary(documents, clock),
        playbooks=playbooks,
        playbook_runner=playbook_runner,
        folder=FlowFolder(settings.flows),
        engine=engine,
        relay=relay,
        checks=checks,
        engines=engines,
        engine_replies=EngineReplies(
            engines,
            stores.incidents,
            playbook_runner,
            clock,
            workflows=engine is not None,
            troubled=lambda text: log.warning("replies of engines cannot be processed yet", detail=text),
        ),
        store_errors=store_errors,
        traces=traces,
        tracing=tracing,
        unreadable=opened.unreadable,
    )


def make_engine(settings: Settings, interceptors: Sequence[Interceptor] = ()) -> TemporalFlowEngine:
    """The engine on Temporal as configured, not yet connected."""
    # The import takes a second, so only processes that use runs do it.
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


def build_storage_access(settings: Settings) -> StorageAccess:
    """The configured storage elements, and the services that access them."""
    elements = elements_of(settings.storage)
    bases = [
        door.base
        for element in elements.values()
        for door in element.doors
        if door.kind in (AccessProtocol.HTTP, AccessProtocol.S3)
    ]
    web = HttpElementFiles(OutboundPolicy.only(*bases, setting="storage"))
    own, xrootd = FolderFiles(), XrootdFiles()
    files: dict[AccessProtocol, ElementFiles] = {
        AccessProtocol.HTTP: web,
        AccessProtocol.S3: web,
        AccessProtocol.FILE: own,
        AccessProtocol.ROOT: xrootd,
    }
    return StorageAccess(elements, S3Signer(credentials_of(settings.storage), ReferencedSecrets()), files)


def build_playbook_runner(components: Components, steer: JobControl) -> PlaybookRunner:
    """The service that carries playbooks out, with a given service for job actions."""
    data_actions = components.data_actions
    data_actions = replace(data_actions, jobs=replace(data_actions.jobs, steer=steer))
    remaker = replace(components.remaker, data=data_actions)
    return replace(components.playbook_runner, jobs=data_actions.jobs, others=_performers(data_actions, remaker))


def _performers(data: DataActions, remaker: OutputRemaker) -> Mapping[ActionKind, Performer]:
    """The services for actions that need more than a write of the job's document."""
    domains = DomainActions(data.jobs, data.store, data.pilots, data.clock)
    return {
        **dict.fromkeys(DATA_ACTIONS, data),
        **dict.fromkeys(DOMAIN_ACTIONS, domains),
        ActionKind.REMAKE: remaker,
    }


def build_worklet_selector(components: Components) -> WorkletSelector | None:
    """The service that chooses flows for late-bound tasks; None: this domain runs jobs only."""
    if components.engine is None:
        return None
    return WorkletSelector(components.pipeline.decider.rules, components.playbooks, components.flows, components.engine)
