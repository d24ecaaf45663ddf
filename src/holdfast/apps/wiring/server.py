"""The services of a server."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

import structlog

from holdfast.adapters.cel.conditions import CelConditions
from holdfast.adapters.cel.sandbox import CelSandbox
from holdfast.adapters.httpx.peer_calls import HttpxPeerCalls
from holdfast.adapters.prometheus.metrics import Sample
from holdfast.adapters.system.attachments import FolderAttachments
from holdfast.adapters.system.results import SharedResults
from holdfast.apps.wiring.identity import ask_provider
from holdfast.apps.wiring.parts import Parts, choose_worklets
from holdfast.apps.wiring.peers import hold_leases, peer_certificates
from holdfast.apps.wiring.relays import RelayParts
from holdfast.domain.jobs.claim import leave_fault
from holdfast.ports.job_store import Stored
from holdfast.services.bind_worklets import BindWorklets
from holdfast.services.claim_jobs import ClaimJobs
from holdfast.services.close_requests import CloseRequests
from holdfast.services.count_inputs import CountInputs
from holdfast.services.drain_pilots import DrainPilots
from holdfast.services.edit_rules import EditRules
from holdfast.services.end_jobs import EndJobs
from holdfast.services.enrol_pilots import EnrolPilots
from holdfast.services.find_outputs import FindOutputs
from holdfast.services.follow_jobs import FollowJobs
from holdfast.services.hold_channels import HoldChannels
from holdfast.services.keep_beats import KeepBeats
from holdfast.services.keep_caches import CacheListener, KeepCaches
from holdfast.services.keep_gates import KeepGates
from holdfast.services.keep_hosts import KeepHosts
from holdfast.services.keep_launches import KeepLaunches
from holdfast.services.keep_links import KeepLinks
from holdfast.services.keep_neighbours import KeepNeighbours
from holdfast.services.keep_rules import KeepRules
from holdfast.services.keep_sites import KeepSites
from holdfast.services.keep_tasks import KeepTasks
from holdfast.services.know_callers import KnowCallers
from holdfast.services.know_specifications import KnowSpecifications
from holdfast.services.look_at_fleet import LookAtFleet
from holdfast.services.look_back import LookBack
from holdfast.services.make_tasks import MakeTasks
from holdfast.services.match_jobs import MatchJobs, policy_of
from holdfast.services.measure_demand import MeasureDemand
from holdfast.services.measure_offer import MeasureOffer
from holdfast.services.note_failed_checks import NoteFailedChecks
from holdfast.services.note_leftovers import NoteLeftovers
from holdfast.services.note_replicas import NoteReplicas
from holdfast.services.open_sessions import OpenSessions
from holdfast.services.promote_rules import PromoteRules
from holdfast.services.propose_rules import ProposeRules
from holdfast.services.read_outputs import ReadOutputs
from holdfast.services.read_results import ReadResults
from holdfast.services.read_runs import ReadRuns
from holdfast.services.recall_tasks import RecallTasks
from holdfast.services.replay_rules import ReplayRules
from holdfast.services.revoke_pilots import RevokePilots
from holdfast.services.rule_cache import RuleCache
from holdfast.services.steer_jobs import SteerJobs
from holdfast.services.submit_jobs import SubmitJobs
from holdfast.services.take_events import TakeEvents
from holdfast.services.tell_stories import TellStories

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
        yield Sample("holdfast_claims_granted_total", "Claims given to pilots", desk.granted)
        yield Sample("holdfast_claims_first_total", "Of these, claims written together with their jobs", desk.first)
        yield Sample("holdfast_claims_lost_total", "Claims written in vain", desk.lost)
        yield Sample("holdfast_claim_bulks_total", "Writes of claims", desk.bulks)
        yield Sample("holdfast_window_pages_total", "Pages of candidates read", desk.pages)
        yield Sample("holdfast_lane_looks_total", "Looks for lanes with work", desk.looks)
        yield Sample("holdfast_claims_near_total", "Claims of jobs whose data are there", self.match.near_given)
        yield Sample("holdfast_cached_files_known", "Files in caches of pilots that ask here", self.caches.files)
        yield Sample("holdfast_requests_waiting", "Pilots waiting for work", self.claims.waiting)
        yield Sample("holdfast_writes_total", "Version-checked writes", tally.written, (("result", "written"),))
        yield Sample("holdfast_writes_total", "", tally.conflicts, (("result", "conflict"),))
        yield Sample("holdfast_writes_total", "", tally.unknown, (("result", "unknown"),))
        yield Sample("holdfast_writes_confirmed_total", "Writes settled by a confirming one", tally.confirmed)
        yield Sample("holdfast_channels_open", "Pilots with a channel here", self.channels.open_count)
        yield Sample("holdfast_pilot_deaths_total", "Pilots whose channel closed for good", self.channels.deaths)
        yield Sample("holdfast_claims_released_total", "Claims taken away", self.parts.release.released)
        yield Sample("holdfast_intrusions_total", "Ends that named another tenant's job", self.ends.intrusions)
        yield Sample("holdfast_servers_alive", "Servers seen alive", len(self.beats.alive))
        yield from self.beside()
