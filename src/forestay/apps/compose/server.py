"""The services of a server."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import structlog

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.cel.requirements import CelRequirements
from forestay.adapters.cel.sandbox import CelSandbox
from forestay.adapters.httpx.peer_calls import HttpxPeerCalls
from forestay.adapters.prometheus.metrics import Sample
from forestay.adapters.system.attachments import FolderAttachments
from forestay.adapters.system.file_digests import SharedFileDigests
from forestay.adapters.system.file_lists import SharedFiles
from forestay.adapters.system.results import SharedResults
from forestay.apps.compose.components import Components, build_worklet_selector
from forestay.apps.compose.identity import build_oidc_provider
from forestay.apps.compose.peers import build_peer_leases, peer_certificates
from forestay.apps.compose.proxies import ProxyComponents
from forestay.domain.jobs.claim import leave_failure
from forestay.services.data.checkpoints import Checkpoints
from forestay.services.data.output_resolver import OutputResolver
from forestay.services.data.replica_health import ReplicaHealth
from forestay.services.data.result_reader import ResultReader
from forestay.services.exceptions.detect.cleanup_failures import CleanupFailures
from forestay.services.exceptions.engines.engine_event_intake import EngineEventIntake
from forestay.services.exceptions.inbox.error_triages import ErrorTriages
from forestay.services.exceptions.inbox.inbox_reader import InboxReader
from forestay.services.exceptions.safeguards.approval_closer import ApprovalCloser
from forestay.services.flows.dry_runner import DryRunner
from forestay.services.flows.flow_suspensions import FlowSuspensions
from forestay.services.flows.result_reuse import ResultReuse
from forestay.services.insertion.task_factory import TaskFactory
from forestay.services.insertion.tes_tasks import TaskCache, TesTasks
from forestay.services.insertion.wes_runs import WesRuns
from forestay.services.jobs.committed_outputs import CommittedOutputs
from forestay.services.jobs.job_completions import JobCompletions
from forestay.services.jobs.job_control import JobControl
from forestay.services.jobs.job_events import JobEvents
from forestay.services.jobs.job_submitter import JobSubmitter
from forestay.services.jobs.specification_cache import SpecificationCache
from forestay.services.operations.authenticator import Authenticator
from forestay.services.operations.browser_sessions import BrowserSessions
from forestay.services.operations.right_sizing import RightSizing
from forestay.services.operations.run_timeline import RunTimeline
from forestay.services.operations.token_revocations import TokenRevocations
from forestay.services.operations.usage_history import UsageHistory
from forestay.services.peers.peer_capacity import PeerCapacity
from forestay.services.peers.peer_links import PeerLinks
from forestay.services.pilots.heartbeats import Heartbeats
from forestay.services.pilots.input_counter import InputCounter
from forestay.services.pilots.neighbour_registry import NeighbourRegistry
from forestay.services.pilots.pilot_channels import PilotChannels
from forestay.services.pilots.pilot_drain import PilotDrain
from forestay.services.pilots.pilot_enrolment import PilotEnrolment
from forestay.services.pilots.pilot_launches import PilotLaunches
from forestay.services.pilots.pilot_revocations import PilotRevocations
from forestay.services.rules.rule_editor import RuleEditor
from forestay.services.rules.rule_promotion import RulePromotion
from forestay.services.rules.rule_proposals import RuleProposals
from forestay.services.rules.rule_replay import RuleReplay
from forestay.services.rules.rule_store import RuleCache, RuleStore
from forestay.services.rules.worklet_bindings import WorkletBindings
from forestay.services.scheduling.candidate_buffers import CandidateSignal
from forestay.services.scheduling.claim_dispatcher import ClaimDispatcher
from forestay.services.scheduling.container_fleet import ContainerFleet
from forestay.services.scheduling.fair_shares import FairShares
from forestay.services.scheduling.host_health_tracker import HostHealthTracker
from forestay.services.scheduling.job_matcher import JobMatcher
from forestay.services.scheduling.licence_seats import LicenceSeats
from forestay.services.scheduling.node_check_failures import NodeCheckFailures
from forestay.services.scheduling.pilot_caches import CacheListener, PilotCaches
from forestay.services.scheduling.quota_ledgers import QuotaLedgers
from forestay.services.scheduling.quota_policies import QuotaPolicies
from forestay.services.scheduling.requirement_matcher import RequirementMatcher
from forestay.services.sites.demand_meter import DemandMeter
from forestay.services.sites.fleet_view import FleetView
from forestay.services.sites.site_registry import SiteRegistry

if TYPE_CHECKING:
    from forestay.apps.compose.reconciler import ReconcilerComponents

log = structlog.get_logger()


class ServerComponents:
    """The services of one server, joined."""

    def __init__(self, components: Components, beside: ReconcilerComponents | None = None) -> None:
        """``beside``: the reconciler that runs in the same process."""
        self.components = components
        self.beside = beside
        self.name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        store, clock, writer = components.store, components.clock, components.writer
        candidates = CandidateSignal()
        self.match = JobMatcher(store, clock)
        self.caches = PilotCaches(clock, [CacheListener(self.match.told, self.match.forgotten)])
        self.hosts = HostHealthTracker(
            components.documents,
            store,
            clock,
            components.classifiers,
            changed=candidates.look_anew,
            troubled=lambda text: log.warning("a host", detail=text),
        )
        self.suspensions = FlowSuspensions(components.documents, changed=candidates.look_anew)
        self.requirements = RequirementMatcher(CelRequirements(), components.pilots, clock)
        self.seats = LicenceSeats(components.documents, writer, clock, changed=candidates.look_anew)
        policies = QuotaPolicies(components.documents)
        self.quotas = QuotaLedgers(
            components.documents,
            store,
            writer,
            clock,
            policies,
            server=self.name,
            alone=lambda: len(self.heartbeats.alive) <= 1,
            changed=candidates.wake,
        )
        self.shares = FairShares(components.documents, store, clock, policies)
        self.claims = ClaimDispatcher(
            store,
            writer,
            clock,
            components.ids,
            match=self.match,
            hosts=self.hosts,
            suspensions=self.suspensions,
            signal=candidates,
            containers=ContainerFleet(components.pilots, clock, candidates),
            requirements=self.requirements,
            seats=self.seats,
            quotas=self.quotas,
            shares=self.shares,
        )
        self.completions = JobCompletions(
            store,
            writer,
            clock,
            failures=components.pipeline,
            hosts=self.hosts,
            leftovers=CleanupFailures(store, components.incidents, clock),
            sources=ReplicaHealth(components.catalogue, store, clock) if components.elements.elements else None,
            troubled=lambda text: log.warning("failures wait", detail=text),
            intruded=lambda pilot, tenant, job: log.warning("intrusion", pilot=pilot, tenant=tenant, job=job),
        )
        self.job_events = JobEvents(store, clock, alone=lambda: len(self.heartbeats.alive) <= 1)
        self.specifications = SpecificationCache(store)
        recall = TaskCache(clock)
        self.submit = JobSubmitter(
            store,
            clock,
            components.ids,
            listeners=[self.claims, self.job_events, recall, *components.new_job_listeners()],
            documents=components.documents,
            trace=components.current_trace,
            pilots=self.claims,
        )
        self.requests = ApprovalCloser(components.approvals, components.incidents, clock)
        released = components.playbook_runner.release if components.engine is not None else None
        self.steer = JobControl(store, writer, clock, leave_failure, components.incidents, released)
        self.tasks = TesTasks(store, self.submit, self.steer, clock, recall)
        self.task_factory = TaskFactory(store, self.submit, self.specifications, clock)
        self.heartbeats = Heartbeats(
            components.pilots,
            clock,
            server=self.name,
            url=components.settings.public_url,
            shared_out=self.claims.assign_hash_slots,
        )
        self.channels = PilotChannels(
            store,
            components.pilots,
            self.heartbeats,
            components.release,
            clock,
            granted=self.completions.held_by,
            troubled=lambda text: log.warning("deaths wait", detail=text),
            gone=self.caches.forget,
        )
        self.neighbours = NeighbourRegistry(
            components.documents,
            components.pilots,
            clock,
            beating=lambda pilot: self.heartbeats.last_heartbeat(pilot) is not None,
            alone=lambda: len(self.heartbeats.alive) <= 1,
        )
        self.outputs = CommittedOutputs(writer)
        self.checkpoints = Checkpoints(
            writer,
            components.elements,
            clock,
            troubled=lambda text: log.warning("a checkpoint stays", detail=text),
        )
        self.token_revocations = TokenRevocations(store, clock)
        self.sessions = BrowserSessions(
            components.documents, clock, components.ids, components.identity, self.token_revocations
        )
        self.provider = build_oidc_provider(components)
        self.callers = Authenticator(components.identity, self.token_revocations, self.provider)
        self.enrolments = PilotEnrolment(components.documents, clock, components.ids)
        self.sites = SiteRegistry(components.documents, clock)
        self.launches = PilotLaunches(components.documents, clock)
        self.demand = DemandMeter(store, components.pilots, self.launches, self.sites, clock, room=self.quotas.room)
        self.links = PeerLinks(components.documents, store, clock)
        self.peer_calls = HttpxPeerCalls(
            components.peers.tokens, components.peer_hosts, peer_certificates(components.settings)
        )
        self.offer = PeerCapacity(store, components.pilots, self.sites, clock)
        self.failed_checks = NodeCheckFailures(store, clock, [self.hosts.unfit])
        self.drains = PilotDrain(store, components.pilots, clock, self.channels.order)
        self.revocations = PilotRevocations(
            store, components.pilots, clock, components.settings.token_seconds, hang_up=self.channels.hang_up
        )
        results = ResultReader(SharedResults(components.settings.outputs), components.elements)
        self.run_outputs = OutputResolver(store, results)
        settings = components.settings
        self.dry_runner = DryRunner(
            SharedFiles(settings.flow_files, hidden=(settings.state,)),
            self.run_outputs,
            ResultReuse(
                store, components.documents, results, SharedFileDigests((*settings.flow_files, *settings.outputs))
            ),
            clock,
        )
        self.runs = (
            WesRuns(store, components.engine, components.flows, clock) if components.engine is not None else None
        )
        self.leases = (
            build_peer_leases(components, components.engine, self.runs) if components.engine is not None else None
        )
        self.attachments = FolderAttachments(components.settings.attachments_folder)
        self.worklets = WorkletBindings(components.documents, components.flows, build_worklet_selector(components))
        self.conditions, self.trying = CelConditions(), CelSandbox()
        self.rules = RuleStore(components.documents)
        self.rule_cache = RuleCache(RuleStore(components.documents), self.conditions)
        self.rule_editor = RuleEditor(
            self.rules, self.conditions, self.trying, clock, components.ids.job, components.playbooks
        )
        self.rule_replay = RuleReplay(
            components.incidents, store, components.flows, self.rules, self.rule_cache, self.conditions, self.trying, clock,
            components.settings.safeguards, components.playbooks,
        )  # fmt: skip
        self.rule_promotion = RulePromotion(self.rule_editor, self.rule_replay)
        self.engines = components.engines
        self.events = EngineEventIntake(
            store,
            components.incidents,
            components.engines,
            components.pipeline,
            components.classifiers,
            clock,
        )
        self.timeline = RunTimeline(
            components.incidents,
            store,
            components.engine,
            components.engines,
            components.audit,
            components.documents,
        )
        self.inputs = InputCounter(clock)
        self.fleet = FleetView(store, components.pilots, self.sites, self.launches, self.hosts, clock)
        self.usage_history = UsageHistory(store, components.incidents, clock)
        self.inbox = InboxReader(components.incidents, store, ErrorTriages(components.documents, clock), clock)
        self.right_sizing = RightSizing(store, components.flows, clock)
        self.rule_proposals = RuleProposals(
            self.rule_replay, components.documents, ErrorTriages(components.documents, clock).quiet
        )
        writer.listeners += [
            self.hosts,
            self.seats,
            self.quotas,
            self.claims,
            self.job_events,
            self.outputs,
            self.checkpoints,
            self.tasks,
        ]
        self.relays = ProxyComponents(self)

    def loops(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        loops = {
            "claims": self.claims.run,
            "completions": self.completions.run,
            "follow": self.job_events.run,
            "heartbeats": self.heartbeats.run,
            "channels": self.channels.run,
            "revocations": self.revocations.run,
            "token revocations": self.token_revocations.run,
            "hosts": self.hosts.run,
            "neighbours": self.neighbours.run,
            "suspensions": self.suspensions.run,
            "licences": self.seats.run,
            "quotas": self.quotas.run,
            "fair shares": self.shares.run,
            "rules": self.rule_cache.run,
            "tasks": self.tasks.run,
            "tasks told": self.task_factory.run,
            "peers": self.components.peers.run,
        }
        if self.components.relay is not None:
            loops["hints"] = self.components.relay.run_hints
        return loops | self.relays.loops()

    def samples(self) -> Iterator[Sample]:
        """The metrics of this server, for `/metrics`."""
        yield from self.components.samples()
        yield from self.relays.samples()
        desk, tally = self.claims.tally, self.components.writer.tally
        yield Sample("forestay_claims_granted_total", "Claims given to pilots", desk.granted)
        yield Sample("forestay_claims_first_total", "Of these, claims written together with their jobs", desk.first)
        yield Sample("forestay_claims_lost_total", "Claim writes that were lost", desk.lost)
        yield Sample("forestay_claim_bulks_total", "Writes of claims", desk.bulks)
        yield Sample("forestay_candidate_buffer_pages_total", "Pages of candidates read", desk.pages)
        yield Sample("forestay_queue_lane_polls_total", "Polls for queue lanes with jobs", desk.looks)
        yield Sample("forestay_claims_near_total", "Claims of jobs whose data is cached", self.match.near_given)
        yield Sample("forestay_cached_files_known", "Files in caches of pilots that use this server", self.caches.files)
        yield Sample("forestay_requests_waiting", "Pilots waiting for work", self.claims.waiting)
        yield Sample("forestay_writes_total", "Version-checked writes", tally.written, (("result", "written"),))
        yield Sample("forestay_writes_total", "", tally.conflicts, (("result", "conflict"),))
        yield Sample("forestay_writes_total", "", tally.unknown, (("result", "unknown"),))
        yield Sample("forestay_writes_confirmed_total", "Writes settled by a confirming one", tally.confirmed)
        yield Sample("forestay_channels_open", "Pilots with a channel here", self.channels.open_count)
        yield Sample("forestay_pilot_deaths_total", "Pilots whose channel closed for good", self.channels.deaths)
        yield Sample("forestay_claims_released_total", "Claims revoked", self.components.release.released)
        yield Sample(
            "forestay_intrusions_total", "Completions that named another tenant's job", self.completions.intrusions
        )
        yield Sample("forestay_quota_denials_total", "Claims that a quota prevented", self.quotas.denied)
        yield Sample("forestay_servers_alive", "Servers seen alive", len(self.heartbeats.alive))
        if self.beside is not None:
            yield from self.beside.samples()
