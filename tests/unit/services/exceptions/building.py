"""The exception pipeline over one store, without an engine for runs."""

from __future__ import annotations

from collections.abc import Callable

from tests.contract.room import Stores

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.sql.audit import SqlAuditStore
from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.pilot_store import SqlPilotStore
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.adapters.system.patterns import Patterns
from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.exceptions.incidents.exception_policy import ExceptionPolicy
from forestay.domain.exceptions.safeguards.safeguards import SafeguardPolicy
from forestay.domain.jobs.claim import leave_failure
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.playbooks.playbook import Playbook
from forestay.services.exceptions.act.action_executor import ActionExecutor
from forestay.services.exceptions.act.job_actions import JobActions
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner
from forestay.services.exceptions.decide.decider import Decider
from forestay.services.exceptions.detect.external_values import ExternalValues
from forestay.services.exceptions.detect.failure_detector import FailureDetector, FailureHistory
from forestay.services.exceptions.detect.taught_patterns import TaughtPatterns
from forestay.services.exceptions.failure_review import FailureReview
from forestay.services.exceptions.pipeline import ExceptionPipeline
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.exceptions.record.decision_log import DecisionLog
from forestay.services.exceptions.recovery import ExceptionRecovery
from forestay.services.exceptions.safeguards.action_limits import ActionLimits, StormTracker
from forestay.services.exceptions.safeguards.approvals import Approvals
from forestay.services.exceptions.safeguards.safeguards import ChainCounter, Safeguards
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.flow_suspensions import FlowSuspensions
from forestay.services.flows.run_context import RunStates
from forestay.services.jobs.claim_releaser import ClaimReleaser
from forestay.services.jobs.job_control import JobControl
from forestay.services.pilots.batch_status import BatchStatus
from forestay.services.pilots.pilot_launches import PilotLaunches
from forestay.services.rules.playbook_store import PlaybookStore
from forestay.services.rules.rule_store import RuleCache, RuleStore
from forestay.services.shared.checked_writer import CheckedWriter

PATTERNS = Patterns()
CONDITIONS = CelConditions()


class NoFilePolicy:
    """A domain without storage elements: no failure is about files."""

    async def answer(self, _document: JobDocument, _evidence: Evidence, _finding: CauseFinding) -> Playbook | None:
        return None


def sql_stores(jobs: SqlJobStore) -> Stores:
    database = jobs.database
    return Stores(
        jobs, SqlPilotStore(database), SqlDocumentStore(database), SqlIncidentStore(database), SqlAuditStore(database)
    )


def build_runner(stores: Stores) -> PlaybookRunner:
    store, clock, writer = stores.jobs, SystemClock(), CheckedWriter(stores.jobs)
    actions = JobActions(writer, JobControl(store, writer, clock, leave_failure), clock)
    suspensions = FlowSuspensions(stores.documents)
    return PlaybookRunner(stores.incidents, store, None, FlowStore(store, clock), suspensions, actions, clock)


def build_pipeline(
    stores: Stores,
    *,
    safeguards: SafeguardPolicy | None = None,
    policy: ExceptionPolicy | None = None,
    troubled: Callable[[str], None] = lambda _text: None,
) -> ExceptionPipeline:
    store, pilots, documents, incidents, audit = stores
    clock, ids, writer = SystemClock(), RandomIds(), CheckedWriter(store)
    flows = FlowStore(store, clock)
    storms = StormTracker(documents, store, clock)
    log = DecisionLog(incidents, AuditLog(audit, clock, ids), clock)
    batch = BatchStatus(pilots, PilotLaunches(documents, clock), ClaimReleaser(store, pilots, writer, clock))
    return ExceptionPipeline(
        store,
        incidents,
        FailureDetector(
            store,
            pilots,
            batch,
            PATTERNS,
            FailureHistory(incidents, documents, RunStates(None, clock), ExternalValues((), clock), clock),
            flows,
        ),
        Decider(
            RuleCache(RuleStore(documents), CONDITIONS),
            PlaybookStore(documents, flows, clock),
            NoFilePolicy(),
            policy or ExceptionPolicy(),
        ),
        Safeguards(
            ActionLimits(documents, storms, clock, ids, safeguards or SafeguardPolicy()),
            ChainCounter(incidents, store),
            Approvals(store, clock),
        ),
        ActionExecutor(log, writer, build_runner(stores), None, storms, clock),
        log,
        clock,
        troubled=troubled,
    )


def recovery_of(pipeline: ExceptionPipeline) -> ExceptionRecovery:
    return ExceptionRecovery(pipeline, pipeline.store, pipeline.incidents, pipeline.clock, review_of(pipeline))


def review_of(pipeline: ExceptionPipeline) -> FailureReview:
    return FailureReview(pipeline, TaughtPatterns(pipeline.detector.history.documents, pipeline.clock))
