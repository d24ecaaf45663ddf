"""The services of a keeper."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from importlib.metadata import version
from typing import Any

import structlog

from forestay.adapters.prometheus.metrics import Sample
from forestay.apps.compose.lineage import tell_lineage
from forestay.apps.compose.parts import Parts, run_exlet
from forestay.apps.compose.peers import follow_peers, hold_leases
from forestay.apps.compose.receivers import tell_receivers
from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.jobs.claim import leave_fault
from forestay.domain.jobs.job_document import State
from forestay.services.exceptions.act.close_faults import CloseFaults
from forestay.services.exceptions.detect.watch_limits import WatchLimits
from forestay.services.exceptions.detect.watch_unavailable import WatchUnavailable
from forestay.services.exceptions.safeguards.close_requests import CloseRequests
from forestay.services.flows.keep_gates import KeepGates
from forestay.services.flows.pass_orders import PassOrders
from forestay.services.jobs.send_callbacks import SendCallbacks
from forestay.services.jobs.steer_jobs import SteerJobs
from forestay.services.jobs.watch_forgotten import WatchForgotten
from forestay.services.jobs.watch_runtimes import WatchRuntimes
from forestay.services.operations.count_domain import UNCLOSED, CountDomain
from forestay.services.operations.prune_jobs import PruneJobs
from forestay.services.peers.follow_peers import FollowPeers
from forestay.services.peers.hold_leases import HoldLeases
from forestay.services.pilots.note_keepers import NoteKeepers
from forestay.services.pilots.watch_orphans import WatchOrphans
from forestay.services.shared.set_aside import SetAside

log = structlog.get_logger()


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
            batch=parts.batch,
            alarmed=lambda text: log.error("many orphans", detail=text),
        )
        self.runtimes = WatchRuntimes(
            parts.store,
            parts.clock,
            raised=lambda job: log.warning("past its expected runtime", job=job.id, name=job.name, owner=job.owner),
            troubled=lambda text: log.warning("run times are not watched", detail=text),
        )
        self.forgotten = WatchForgotten(
            parts.store,
            parts.clock,
            raised=lambda job: log.error(
                "a job failed that nobody waits for", job=job.id, name=job.name, owner=job.owner
            ),
            troubled=lambda text: log.warning("forgotten jobs are not watched", detail=text),
        )
        self.counts = CountDomain(parts.store, parts.incidents, parts.clock)
        self.callbacks = SendCallbacks(parts.store, parts.writer, parts.clock, parts.notify)
        self.receivers = tell_receivers(parts)
        self.lineage = tell_lineage(parts)
        self.limits = WatchLimits(
            parts.store,
            parts.exceptions,
            parts.flows,
            parts.clock,
            troubled=lambda text: log.warning("limits are not watched", detail=text),
        )
        self.unavailable = WatchUnavailable(
            parts.store,
            parts.pilots,
            parts.exceptions,
            parts.flows,
            parts.clock,
            patience=settings.unavailable_after,
            every=min(15.0, settings.unavailable_after / 2),
            troubled=lambda text: log.warning("waiting jobs are not watched", detail=text),
        )
        steer = SteerJobs(parts.store, parts.writer, parts.clock, leave_fault)
        self.closing = CloseFaults(
            parts.incidents,
            parts.store,
            run_exlet(parts, steer),
            parts.clock,
            troubled=lambda text: log.warning("incidents wait to be closed", detail=text),
        )
        self.requests = CloseRequests(
            parts.approvals,
            parts.incidents,
            parts.clock,
            troubled=lambda text: log.warning("requests that came to nothing are not closed", detail=text),
        )
        self.pruning = PruneJobs(
            parts.store,
            parts.slips,
            parts.clock,
            parts.engine,
            keep_days=settings.keep_days,
            troubled=lambda text: log.warning("jobs that ended long ago are still kept", detail=text),
        )
        self.noting = NoteKeepers(
            parts.slips,
            parts.clock,
            f"{socket.gethostname()}:{os.getpid()}",
            version("forestay"),
            troubled=lambda text: log.warning("nobody hears that this keeper runs", detail=text),
        )
        self.orders: PassOrders | None = None
        self.follow: FollowPeers | None = None
        self.leases: HoldLeases | None = None
        if parts.engine is not None:
            self.follow, self.leases = follow_peers(parts, parts.engine), hold_leases(parts, parts.engine)
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
            "exceptions": self.parts.exceptions.run,
            "limits": self.limits.run,
            "unavailable": self.unavailable.run,
            "canaries": self.parts.brakes.storms.run,
            "closing": self.closing.run,
            "requests": self.requests.run,
            "engines": self.parts.engines.run,
            "counts": self.counts.run,
            "noting": self.noting.run,
            "pruning": self.pruning.run,
        }
        if self.lineage is not None:
            loops["lineage"] = self.lineage.run
        if self.receivers is not None:
            loops["receivers"] = self.receivers.run
        if self.parts.relay is not None:
            loops["relay"] = self.parts.relay.run
        if self.orders is not None:
            loops["orders"] = self.orders.run
        if self.follow is not None and self.leases is not None:
            loops |= {"peers": self.follow.run, "leases": self.leases.run}
        return loops

    def samples(self) -> Iterator[Sample]:
        """What only a keeper does, and how the domain stands."""
        yield from self._domain_samples()
        yield from self._set_aside_samples()
        yield Sample("forestay_orphans_silent_total", "Claims of silent pilots released", self.orphans.silent_found)
        yield Sample("forestay_orphans_forgotten_total", "Claims unknown to their pilots", self.orphans.forgotten_found)
        yield Sample("forestay_orphan_alarms_total", "Scans stopped: too many at once", self.orphans.alarms)
        yield Sample(
            "forestay_orphans_by_batch_total", "Claims released by a batch system's word", self.parts.batch.freed
        )
        yield Sample("forestay_runtime_alerts_total", "Attempts past their expected runtime", self.runtimes.alerts)
        yield Sample("forestay_forgotten_alerts_total", "Failed jobs that nobody waits for", self.forgotten.alerts)
        yield Sample("forestay_jobs_pruned_total", "Jobs removed that had ended long ago", self.pruning.removed)
        yield Sample("forestay_callbacks_total", "Notifications", self.callbacks.sent, (("result", "taken"),))
        yield Sample("forestay_callbacks_total", "", self.callbacks.failed, (("result", "failed"),))
        if (lineage := self.lineage) is not None:
            yield Sample("forestay_lineage_events_total", "OpenLineage events", lineage.sent, (("result", "sent"),))
            yield Sample("forestay_lineage_events_total", "", lineage.refused, (("result", "refused"),))
        if (told := self.receivers) is not None:
            yield Sample("forestay_letters_total", "Letters to receivers", told.sent, (("result", "taken"),))
            yield Sample("forestay_letters_total", "", told.failed, (("result", "failed"),))
            yield Sample("forestay_letters_total", "", told.dropped, (("result", "given up"),))
        if self.follow is not None and self.leases is not None:
            yield Sample("forestay_peer_batches_total", "Calls that asked peers after runs", self.follow.batches)
            yield Sample("forestay_peer_ends_total", "Ends of sub-flows in other domains", self.follow.told)
            yield Sample("forestay_peer_moves_total", "Sub-flows that left a domain", self.follow.moved)
            yield Sample("forestay_peer_stops_total", "Runs stopped for lapsed leases", self.leases.stopped)
        relay = self.parts.relay
        if relay is not None:
            yield Sample("forestay_relay_signals_total", "Signals to cases and shards", relay.told)
            yield Sample("forestay_relay_ends_total", "Ended jobs", relay.delivered, (("result", "delivered"),))
            yield Sample("forestay_relay_ends_total", "", relay.undeliverable, (("result", "undeliverable"),))

    def _set_aside_samples(self) -> Iterator[Sample]:
        """What each loop could not handle and has set aside, so that the rest goes on."""
        asides: dict[str, SetAside] = {
            "runtimes": self.runtimes.aside,
            "forgotten": self.forgotten.aside,
            "faults": self.parts.faults.aside,
            "exceptions": self.parts.exceptions.aside,
            "limits": self.limits.aside,
            "unavailable": self.unavailable.aside,
            "canaries": self.parts.brakes.storms.aside,
            "closing": self.closing.aside,
            "requests": self.parts.approvals.aside,
            "engines": self.parts.engines.aside,
            "pruning": self.pruning.aside,
        }
        if self.lineage is not None:
            asides["lineage"] = self.lineage.aside
        if self.parts.relay is not None:
            asides["relay"] = self.parts.relay.aside
        if self.follow is not None and self.leases is not None:
            asides |= {"peers": self.follow.aside, "leases": self.leases.aside}
        for loop, aside in asides.items():
            yield Sample("forestay_set_aside_total", "Items that could not be handled", aside.count, (("loop", loop),))

    def _domain_samples(self) -> Iterator[Sample]:
        counts = self.counts.read()
        if counts is None:
            return
        for state in State:
            yield Sample("forestay_jobs", "Jobs in the store", counts.jobs.get(state, 0), (("state", state.value),))
        for standing in UNCLOSED:
            labels = (("state", standing.value),)
            yield Sample("forestay_incidents", "Incidents not closed", counts.incidents.get(standing, 0), labels)
        for cause in Cause:
            labels = (("cause", cause.value),)
            yield Sample("forestay_inbox", "Incidents that wait for a person", counts.held.get(cause, 0), labels)
        yield Sample("forestay_oldest_available_seconds", "Age of the oldest job that waits", counts.oldest_available)
        yield Sample("forestay_oldest_held_seconds", "Longest wait for a person", counts.oldest_held)
