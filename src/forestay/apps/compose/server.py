"""The services of a server."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

import structlog

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.cel.sandbox import CelSandbox
from forestay.adapters.httpx.peer_calls import HttpxPeerCalls
from forestay.adapters.prometheus.metrics import Sample
from forestay.adapters.system.attachments import FolderAttachments
from forestay.adapters.system.results import SharedResults
from forestay.apps.compose.identity import ask_provider
from forestay.apps.compose.parts import Parts, choose_worklets
from forestay.apps.compose.peers import hold_leases, peer_certificates
from forestay.apps.compose.relays import RelayParts
from forestay.domain.jobs.claim import leave_fault
from forestay.ports.jobs.job_store import Stored
from forestay.services.data.find_outputs import FindOutputs
from forestay.services.data.note_replicas import NoteReplicas
from forestay.services.data.read_results import ReadResults
from forestay.services.exceptions.engines.take_events import TakeEvents
from forestay.services.exceptions.safeguards.close_requests import CloseRequests
from forestay.services.flows.keep_gates import KeepGates
from forestay.services.insertion.keep_tasks import KeepTasks
from forestay.services.insertion.make_tasks import MakeTasks
from forestay.services.insertion.read_runs import ReadRuns
from forestay.services.insertion.recall_tasks import RecallTasks
from forestay.services.jobs.end_jobs import EndJobs
from forestay.services.jobs.follow_jobs import FollowJobs
from forestay.services.jobs.know_specifications import KnowSpecifications
from forestay.services.jobs.note_leftovers import NoteLeftovers
from forestay.services.jobs.read_outputs import ReadOutputs
from forestay.services.jobs.steer_jobs import SteerJobs
from forestay.services.jobs.submit_jobs import SubmitJobs
from forestay.services.operations.know_callers import KnowCallers
from forestay.services.operations.look_back import LookBack
from forestay.services.operations.open_sessions import OpenSessions
from forestay.services.operations.tell_stories import TellStories
from forestay.services.peers.keep_links import KeepLinks
from forestay.services.peers.measure_offer import MeasureOffer
from forestay.services.pilots.count_inputs import CountInputs
from forestay.services.pilots.drain_pilots import DrainPilots
from forestay.services.pilots.enrol_pilots import EnrolPilots
from forestay.services.pilots.hold_channels import HoldChannels
from forestay.services.pilots.keep_beats import KeepBeats
from forestay.services.pilots.keep_launches import KeepLaunches
from forestay.services.pilots.keep_neighbours import KeepNeighbours
from forestay.services.pilots.revoke_pilots import RevokePilots
from forestay.services.rules.bind_worklets import BindWorklets
from forestay.services.rules.edit_rules import EditRules
from forestay.services.rules.keep_rules import KeepRules
from forestay.services.rules.promote_rules import PromoteRules
from forestay.services.rules.propose_rules import ProposeRules
from forestay.services.rules.replay_rules import ReplayRules
from forestay.services.rules.rule_cache import RuleCache
from forestay.services.scheduling.claim_jobs import ClaimJobs
from forestay.services.scheduling.keep_caches import CacheListener, KeepCaches
from forestay.services.scheduling.keep_hosts import KeepHosts
from forestay.services.scheduling.match_jobs import MatchJobs, policy_of
from forestay.services.scheduling.note_failed_checks import NoteFailedChecks
from forestay.services.sites.keep_sites import KeepSites
from forestay.services.sites.look_at_fleet import LookAtFleet
from forestay.services.sites.measure_demand import MeasureDemand

log = structlog.get_logger()


class ServerParts:
    """The services of one server, joined."""

    beside: Callable[[], Iterable[Sample]] = staticmethod(lambda: ())
    """Figures of what else runs in this process."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        store, clock, writer = parts.store, parts.clock, parts.writer
        self.claims = ClaimJobs(store, writer, clock, parts.ids)
        self.match = MatchJobs(store, clock, policy_of(parts.settings.matching))
        self.claims.weigh(self.match)
        self.caches = KeepCaches(clock, [CacheListener(self.match.told, self.match.forgotten)])
        self.hosts = KeepHosts(
            parts.slips,
            store,
            clock,
            parts.faults.classifier,
            changed=self.claims.windows.look_anew,
            troubled=lambda text: log.warning("a host", detail=text),
        )
        self.claims.hosts = self.hosts
        self.ends = EndJobs(
            store,
            writer,
            clock,
            faulted=self._faulted,
            left_behind=NoteLeftovers(store, parts.incidents, clock).note,
            staged=NoteReplicas(parts.catalogue, store, clock).note if parts.elements.elements else None,
            troubled=lambda text: log.warning("faults wait", detail=text),
            intruded=lambda pilot, tenant, job: log.warning("intrusion", pilot=pilot, tenant=tenant, job=job),
        )
        self.follow = FollowJobs(store, clock, alone=lambda: len(self.beats.alive) <= 1)
        self.specifications = KnowSpecifications(store)
        recall = RecallTasks(clock)
        self.submit = SubmitJobs(
            store,
            clock,
            parts.ids,
            offered=[self.claims.offer, self.follow.created, recall.created],
            slips=parts.slips,
            claim_first=self.claims.claim_first,
        )
        if parts.traces is not None and parts.tracing is not None:
            self.submit.offered.append(parts.tracing.created)
            self.submit.trace = parts.traces.current
        self.requests = CloseRequests(parts.approvals, parts.incidents, clock)
        exlets = parts.exceptions.acting.exlets
        released = exlets.release if exlets is not None and parts.engine is not None else None
        self.steer = SteerJobs(store, writer, clock, leave_fault, parts.incidents, released)
        self.tasks = KeepTasks(store, self.submit, self.steer, clock, recall)
        self.make_tasks = MakeTasks(store, self.submit, self.specifications, clock)
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
            gone=self.caches.forget,
        )
        self.neighbours = KeepNeighbours(
            parts.slips,
            parts.pilots,
            clock,
            beating=lambda pilot: self.beats.last_beat(pilot) is not None,
            alone=lambda: len(self.beats.alive) <= 1,
        )
        self.outputs = ReadOutputs(writer)
        self.sessions = OpenSessions(parts.slips, clock, parts.ids, parts.identity)
        self.provider = ask_provider(parts)
        self.callers = KnowCallers(parts.identity, self.provider)
        self.enrolments = EnrolPilots(parts.slips, clock, parts.ids)
        self.sites = KeepSites(parts.slips, clock)
        self.launches = KeepLaunches(parts.slips, clock)
        self.demand = MeasureDemand(store, parts.pilots, self.launches, self.sites, clock)
        self.links = KeepLinks(parts.slips, store, clock)
        self.peer_calls = HttpxPeerCalls(parts.peers.tokens, parts.peer_hosts, peer_certificates(parts.settings))
        self.offer = MeasureOffer(store, parts.pilots, self.sites, clock)
        self.failed_checks = NoteFailedChecks(store, clock)
        self.drains = DrainPilots(store, parts.pilots, clock, self.channels.order)
        self.revocations = RevokePilots(
            store, parts.pilots, clock, parts.settings.token_seconds, hang_up=self.channels.hang_up
        )
        self.case_outputs = FindOutputs(store, ReadResults(SharedResults(parts.settings.outputs), parts.elements))
        self.runs = ReadRuns(store, parts.engine, parts.flows, clock) if parts.engine is not None else None
        self.leases = hold_leases(parts, parts.engine, self.runs) if parts.engine is not None else None
        self.attachments = FolderAttachments(parts.settings.attachments_folder)
        self.worklets = BindWorklets(parts.slips, parts.flows, choose_worklets(parts))
        self.gates = KeepGates(parts.slips, changed=self.claims.windows.look_anew)
        self.claims.windows.gated = self.gates.gated
        self.conditions, self.trying = CelConditions(), CelSandbox()
        self.rules = KeepRules(parts.slips)
        self.rule_cache = RuleCache(KeepRules(parts.slips), self.conditions)
        self.edit_rules = EditRules(self.rules, self.conditions, self.trying, clock, parts.ids.job, parts.exlets)
        self.replay_rules = ReplayRules(
            parts.incidents, store, parts.flows, self.rules, self.rule_cache, self.conditions, self.trying, clock,
            parts.settings.brakes, parts.exlets,
        )  # fmt: skip
        self.promote_rules = PromoteRules(self.edit_rules, self.replay_rules)
        self.engines = parts.engines
        self.events = TakeEvents(
            store, parts.incidents, parts.engines, parts.exceptions, parts.faults.classifier, clock
        )
        self.stories = TellStories(parts.incidents, store, parts.engine, parts.engines, parts.audit)
        self.inputs = CountInputs(clock)
        self.fleet = LookAtFleet(store, parts.pilots, self.sites, self.launches, self.hosts, clock)
        self.past = LookBack(store, parts.incidents, clock)
        self.propose_rules = ProposeRules(self.replay_rules)
        self.failed_checks.listeners.append(self.hosts.unfit)
        writer.listeners += [self.hosts.notice, self.claims.notice, self.follow.notice, self.outputs.notice]
        writer.listeners.append(self.tasks.notice)
        self.relays = RelayParts(self)

    async def _faulted(self, faults: Sequence[tuple[Stored, str]]) -> None:
        """Bad ends: where they happened is noted before what to do about them is decided, for the next try may come at once."""
        await self.hosts.faulted(faults)
        await self.parts.faults.handle(faults)

    def loops(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        loops = {
            "claims": self.claims.run,
            "ends": self.ends.run,
            "follow": self.follow.run,
            "beats": self.beats.run,
            "channels": self.channels.run,
            "revocations": self.revocations.run,
            "hosts": self.hosts.run,
            "neighbours": self.neighbours.run,
            "gates": self.gates.run,
            "rules": self.rule_cache.run,
            "tasks": self.tasks.run,
            "tasks told": self.make_tasks.run,
            "peers": self.parts.peers.run,
        }
        if self.parts.relay is not None:
            loops["hints"] = self.parts.relay.run_hints
        return loops | self.relays.loops()

    def samples(self) -> Iterator[Sample]:
        """What this server has done, for `/metrics`."""
        yield from self.parts.samples()
        yield from self.relays.samples()
        desk, tally = self.claims.tally, self.parts.writer.tally
        yield Sample("forestay_claims_granted_total", "Claims given to pilots", desk.granted)
        yield Sample("forestay_claims_first_total", "Of these, claims written together with their jobs", desk.first)
        yield Sample("forestay_claims_lost_total", "Claims written in vain", desk.lost)
        yield Sample("forestay_claim_bulks_total", "Writes of claims", desk.bulks)
        yield Sample("forestay_window_pages_total", "Pages of candidates read", desk.pages)
        yield Sample("forestay_lane_looks_total", "Looks for lanes with work", desk.looks)
        yield Sample("forestay_claims_near_total", "Claims of jobs whose data are there", self.match.near_given)
        yield Sample("forestay_cached_files_known", "Files in caches of pilots that ask here", self.caches.files)
        yield Sample("forestay_requests_waiting", "Pilots waiting for work", self.claims.waiting)
        yield Sample("forestay_writes_total", "Version-checked writes", tally.written, (("result", "written"),))
        yield Sample("forestay_writes_total", "", tally.conflicts, (("result", "conflict"),))
        yield Sample("forestay_writes_total", "", tally.unknown, (("result", "unknown"),))
        yield Sample("forestay_writes_confirmed_total", "Writes settled by a confirming one", tally.confirmed)
        yield Sample("forestay_channels_open", "Pilots with a channel here", self.channels.open_count)
        yield Sample("forestay_pilot_deaths_total", "Pilots whose channel closed for good", self.channels.deaths)
        yield Sample("forestay_claims_released_total", "Claims taken away", self.parts.release.released)
        yield Sample("forestay_intrusions_total", "Ends that named another tenant's job", self.ends.intrusions)
        yield Sample("forestay_servers_alive", "Servers seen alive", len(self.beats.alive))
        yield from self.beside()
