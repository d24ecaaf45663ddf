"""The services of a reconciler."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from importlib.metadata import version
from typing import Any

import structlog

from forestay.adapters.prometheus.metrics import Sample
from forestay.apps.compose.components import Components
from forestay.apps.compose.lineage import build_lineage_reporter
from forestay.apps.compose.notification_channels import build_notifier
from forestay.apps.compose.peers import build_peer_leases, build_peer_poller
from forestay.apps.compose.retention import build_store_pruner
from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.jobs.job_document import State
from forestay.services.exceptions.act.incident_closer import IncidentCloser
from forestay.services.exceptions.detect.limit_monitor import LimitMonitor
from forestay.services.exceptions.detect.unavailability_monitor import UnavailabilityMonitor
from forestay.services.exceptions.safeguards.approval_closer import ApprovalCloser
from forestay.services.flows.flow_suspensions import FlowSuspensions
from forestay.services.flows.suspension_broadcast import SuspensionBroadcast
from forestay.services.jobs.callback_sender import CallbackSender
from forestay.services.jobs.runtime_alerts import RuntimeAlerts
from forestay.services.jobs.unattended_failure_alerts import UnattendedFailureAlerts
from forestay.services.operations.domain_counter import UNCLOSED, DomainCounter
from forestay.services.operations.job_pruner import JobPruner
from forestay.services.peers.peer_leases import PeerLeases
from forestay.services.peers.peer_poller import PeerPoller
from forestay.services.pilots.orphan_scanner import OrphanScanner
from forestay.services.pilots.reconciler_registry import ReconcilerRegistry
from forestay.services.shared.quarantine import Quarantine

log = structlog.get_logger()


class ReconcilerComponents:
    """The services of one reconciler, joined."""

    def __init__(self, components: Components) -> None:
        self.components = components
        settings = components.settings
        self.orphans = OrphanScanner(
            components.store,
            components.pilots,
            components.clock,
            components.release,
            lease=settings.lease,
            every=settings.scan_every,
            batch=components.batch,
            alarmed=lambda text: log.error("many orphans", detail=text),
        )
        self.runtimes = RuntimeAlerts(
            components.store,
            components.clock,
            raised=lambda job: log.warning("expected runtime exceeded", job=job.id, name=job.name, owner=job.owner),
            troubled=lambda text: log.warning("runtimes cannot be checked", detail=text),
        )
        self.forgotten = UnattendedFailureAlerts(
            components.store,
            components.clock,
            raised=lambda job: log.error("an unattended job failed", job=job.id, name=job.name, owner=job.owner),
            troubled=lambda text: log.warning("unattended jobs cannot be checked", detail=text),
        )
        self.counts = DomainCounter(components.store, components.incidents, components.clock)
        self.callbacks = CallbackSender(components.store, components.writer, components.clock, components.notify)
        self.notification_channels = build_notifier(components)
        self.lineage = build_lineage_reporter(components)
        self.limits = LimitMonitor(
            components.store,
            components.pipeline,
            components.flows,
            components.clock,
            troubled=lambda text: log.warning("limits cannot be checked", detail=text),
        )
        self.unavailable = UnavailabilityMonitor(
            components.store,
            components.pilots,
            components.pipeline,
            components.flows,
            components.clock,
            patience=settings.unavailable_after,
            every=min(15.0, settings.unavailable_after / 2),
            troubled=lambda text: log.warning("waiting jobs cannot be checked", detail=text),
        )
        self.closing = IncidentCloser(
            components.incidents,
            components.store,
            components.playbook_runner,
            components.clock,
            troubled=lambda text: log.warning("incidents cannot be closed yet", detail=text),
        )
        self.requests = ApprovalCloser(
            components.approvals,
            components.incidents,
            components.clock,
            troubled=lambda text: log.warning("expired approval requests cannot be closed yet", detail=text),
        )
        self.pruning = JobPruner(
            components.store,
            components.documents,
            components.pilots,
            components.clock,
            components.engine,
            troubled=lambda text: log.warning("old jobs cannot be pruned yet", detail=text),
        )
        self.retention = build_store_pruner(settings, components, self.pruning)
        self.noting = ReconcilerRegistry(
            components.documents,
            components.clock,
            f"{socket.gethostname()}:{os.getpid()}",
            version("forestay"),
            troubled=lambda text: log.warning("this reconciler cannot register itself", detail=text),
        )
        self.orders: SuspensionBroadcast | None = None
        self.follow: PeerPoller | None = None
        self.leases: PeerLeases | None = None
        if components.engine is not None:
            self.follow, self.leases = (
                build_peer_poller(components, components.engine),
                build_peer_leases(components, components.engine),
            )
            self.orders = SuspensionBroadcast(
                FlowSuspensions(components.documents),
                components.engine,
                troubled=lambda text: log.warning("commands for all runs cannot be sent yet", detail=text),
            )

    def loops(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        loops = {
            "orphans": self.orphans.run,
            "runtimes": self.runtimes.run,
            "forgotten": self.forgotten.run,
            "callbacks": self.callbacks.run,
            "exceptions": self.components.recovery.run,
            "remakes": self.components.remaker.run,
            "limits": self.limits.run,
            "unavailable": self.unavailable.run,
            "canaries": self.components.safeguards.storms.run,
            "closing": self.closing.run,
            "requests": self.requests.run,
            "engines": self.components.engine_replies.run,
            "counts": self.counts.run,
            "noting": self.noting.run,
            "pruning": self.retention.run,
        }
        if self.lineage is not None:
            loops["lineage"] = self.lineage.run
        if self.notification_channels is not None:
            loops["notification_channels"] = self.notification_channels.run
        if self.components.relay is not None:
            loops["relay"] = self.components.relay.run
        if self.orders is not None:
            loops |= {"orders": self.orders.run, "events": self.components.events.run}
        if self.follow is not None and self.leases is not None:
            loops |= {"peers": self.follow.run, "leases": self.leases.run}
        return loops

    def samples(self) -> Iterator[Sample]:
        """The metrics of a reconciler's own work, and of the domain's state."""
        yield from self._domain_samples()
        yield from self._set_aside_samples()
        yield Sample("forestay_orphans_silent_total", "Claims of silent pilots released", self.orphans.silent_found)
        yield Sample("forestay_orphans_forgotten_total", "Claims unknown to their pilots", self.orphans.forgotten_found)
        yield Sample(
            "forestay_orphan_alarms_total",
            "Scans stopped because too many pilots were silent at once",
            self.orphans.alarms,
        )
        yield Sample(
            "forestay_orphans_by_batch_total",
            "Claims released after a batch system's report",
            self.components.batch.freed,
        )
        yield Sample("forestay_runtime_alerts_total", "Attempts beyond their expected runtime", self.runtimes.alerts)
        yield Sample("forestay_forgotten_alerts_total", "Failed jobs that are unattended", self.forgotten.alerts)
        yield Sample("forestay_jobs_pruned_total", "Old jobs that were removed", self.pruning.removed)
        for part, removed in self.retention.removed.items():
            yield Sample(
                "forestay_removed_total",
                "Documents that were removed after their retention",
                removed,
                (("part", part),),
            )
        yield Sample("forestay_callbacks_total", "Notifications", self.callbacks.sent, (("result", "taken"),))
        yield Sample("forestay_callbacks_total", "", self.callbacks.failed, (("result", "failed"),))
        if (lineage := self.lineage) is not None:
            yield Sample("forestay_lineage_events_total", "OpenLineage events", lineage.sent, (("result", "sent"),))
            yield Sample("forestay_lineage_events_total", "", lineage.refused, (("result", "refused"),))
        if (notifier := self.notification_channels) is not None:
            yield Sample(
                "forestay_notifications_total", "Notifications to channels", notifier.sent, (("result", "taken"),)
            )
            yield Sample("forestay_notifications_total", "", notifier.failed, (("result", "failed"),))
            yield Sample("forestay_notifications_total", "", notifier.dropped, (("result", "given up"),))
        if self.follow is not None and self.leases is not None:
            yield Sample("forestay_peer_batches_total", "Requests to peers about runs", self.follow.batches)
            yield Sample(
                "forestay_peer_completions_total", "Completions of sub-flows in other domains", self.follow.delivered
            )
            yield Sample("forestay_peer_moves_total", "Sub-flows that left a domain", self.follow.moved)
            yield Sample("forestay_peer_stops_total", "Runs stopped for lapsed leases", self.leases.stopped)
        relay = self.components.relay
        if relay is not None:
            yield Sample("forestay_relay_signals_total", "Signals to runs and shards", relay.signals)
            yield Sample("forestay_relay_completions_total", "Ended jobs", relay.delivered, (("result", "delivered"),))
            yield Sample("forestay_relay_completions_total", "", relay.undeliverable, (("result", "undeliverable"),))

    def _set_aside_samples(self) -> Iterator[Sample]:
        """The entries that each loop could not handle and has set aside, so that the others continue."""
        quarantines: dict[str, Quarantine] = {
            "runtimes": self.runtimes.quarantine,
            "forgotten": self.forgotten.quarantine,
            "exceptions": self.components.pipeline.quarantine,
            "limits": self.limits.quarantine,
            "unavailable": self.unavailable.quarantine,
            "canaries": self.components.safeguards.storms.quarantine,
            "closing": self.closing.quarantine,
            "requests": self.components.approvals.quarantine,
            "engines": self.components.engine_replies.quarantine,
            "pruning": self.pruning.quarantine,
            "pruning-records": self.retention.records.quarantine,
            "pruning-incidents": self.retention.incidents.quarantine,
        }
        if self.lineage is not None:
            quarantines["lineage"] = self.lineage.quarantine
        if self.components.relay is not None:
            quarantines["relay"] = self.components.relay.quarantine
        if self.follow is not None and self.leases is not None:
            quarantines |= {"peers": self.follow.quarantine, "leases": self.leases.quarantine}
        for loop, quarantine in quarantines.items():
            yield Sample(
                "forestay_set_aside_total", "Documents that could not be handled", quarantine.count, (("loop", loop),)
            )

    def _domain_samples(self) -> Iterator[Sample]:
        counts = self.counts.read()
        if counts is None:
            return
        for state in State:
            yield Sample("forestay_jobs", "Jobs in the store", counts.jobs.get(state, 0), (("state", state.value),))
        for status in UNCLOSED:
            labels = (("state", status.value),)
            yield Sample("forestay_incidents", "Incidents not closed", counts.incidents.get(status, 0), labels)
        for cause in Cause:
            labels = (("cause", cause.value),)
            yield Sample("forestay_inbox", "Incidents that need attention", counts.held.get(cause, 0), labels)
        yield Sample("forestay_oldest_available_seconds", "Age of the oldest waiting job", counts.oldest_available)
        yield Sample("forestay_oldest_held_seconds", "Longest wait for a person", counts.oldest_held)
