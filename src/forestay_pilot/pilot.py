"""The life of a pilot: enrol, open the channel, send heartbeats, claim, run, complete, sign off."""

from __future__ import annotations

import logging
import os
import random
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any

from forestay_pilot import __version__
from forestay_pilot.cache.cache import CacheSettings
from forestay_pilot.cache.pilot_cache import PilotCache
from forestay_pilot.claims.claim_loop import ClaimLoop
from forestay_pilot.claims.completion_queue import CompletionQueue
from forestay_pilot.claims.lifetime import Lifetime
from forestay_pilot.claims.log_orders import LogOrders
from forestay_pilot.claims.slot import Slot
from forestay_pilot.claims.work_requests import WorkRequests
from forestay_pilot.containers.container_cleanup import remove_containers
from forestay_pilot.containers.image_store import ImageStore
from forestay_pilot.job_secrets.job_secrets import SecretProvider
from forestay_pilot.job_secrets.site_secrets import SiteSecretsFile
from forestay_pilot.link.channel import ServerChannel
from forestay_pilot.link.heartbeat_sender import HeartbeatSender
from forestay_pilot.link.held_claims import QUANTITIES, ClaimInHand, HeldClaims, SentRequest
from forestay_pilot.link.identity import PilotIdentity
from forestay_pilot.link.lease import PilotLease
from forestay_pilot.link.server_link import LinkError, RefusedError, ServerLink, ServerRing
from forestay_pilot.nodes.ranks import SeveralNodes
from forestay_pilot.process.devices import Device, HostDevices
from forestay_pilot.process.guard_link import GuardLink
from forestay_pilot.process.payload import ClaimedJob, PayloadOutcome, Surroundings
from forestay_pilot.process.slot_end import TIME_OVER, TOLD_TO_STOP, make_completion, unbegun
from forestay_pilot.process.work_folder import WorkFolder
from forestay_pilot.staging.single_flight import SingleFlight
from forestay_pilot.staging.stager import Stager
from forestay_pilot.staging.transfer import StagingError

log = logging.getLogger("forestay_pilot")

_MOST_ENDS_WAITING = 1000  # past this the pilot first delivers what it has


@dataclass(frozen=True)
class PilotSettings:
    """What a pilot is started with."""

    servers: list[str]
    enrol_token: str = field(repr=False)
    outputs: str
    work: str
    host: str
    site: str = "local"
    slots: int = 1
    batch: int = 1
    calls: int = 32
    resources: dict[str, int] = field(default_factory=dict)
    time_left: float | None = None
    time_margin: float = 60.0
    batch_job: str | None = None
    launch: str = ""
    enrolment_file: str | None = None  # removed when the secret in it is used
    max_jobs: int | None = None
    idle_exit: float | None = None
    claim_wait: float = 20.0
    end_wait: float = 60.0
    silence: float = 15.0
    ca_file: str | None = None
    certificate: str | None = None
    cache: CacheSettings | None = None
    share: str | None = None  # the address at which cached files are served to other hosts; closed unless given
    surroundings: Surroundings = field(default_factory=Surroundings)
    devices: list[Device] = field(default_factory=list)
    features: dict[str, str] = field(default_factory=dict)
    secrets: SiteSecretsFile | None = None
    nodes: SeveralNodes | None = None


class EnrolmentRefusedError(Exception):
    """The servers refuse this pilot."""


class PilotProcess:
    """Wires the parts together and decides when each may work."""

    def __init__(self, settings: PilotSettings) -> None:
        self._settings = settings
        self._lifetime = Lifetime(settings.time_left, margin=settings.time_margin, grace=settings.surroundings.grace)
        self._draining = threading.Event()
        self._stop_asked = threading.Event()
        self._preempted = threading.Event()
        self._wake = threading.Event()
        self._ring = ServerRing(settings.servers, settings.ca_file, settings.certificate)
        self._identity = PilotIdentity(
            self._ring,
            settings.enrol_token,
            self._registration(),
            on_stranger=lambda: self.drain(
                "the servers no longer have this pilot, and its enrolment secret is used up"
            ),
            on_enrolled=lambda answer: self._cache.told(answer),
        )
        self._devices = HostDevices(settings.devices)
        self._resources = {quantity: settings.resources.get(quantity, 0) for quantity in QUANTITIES}
        self._held = HeldClaims(
            slots=settings.slots,
            batch=settings.batch,
            resources=self._resources,
            calls=settings.calls,
            devices=self._devices,
        )
        self.signals = 0

    def drain(self, why: str) -> None:
        """Claim no more work; running jobs continue to their end. May be called from any thread."""
        if not self._draining.is_set():
            log.info("draining: %s", why)
            self._draining.set()
        self._wake.set()

    def preempt(self, why: str) -> None:
        """Drain. What can be continued elsewhere from a checkpoint does not go on to its end."""
        self._preempted.set()
        self.drain(why)

    def stop_payloads(self) -> None:
        """While draining: end what runs, too."""
        self._stop_asked.set()
        self._wake.set()

    def on_signal(self) -> None:
        """The first signal drains, the second stops payloads."""
        self.signals += 1
        if self.signals == 1:
            self.preempt("requested by a signal")
        else:
            self.stop_payloads()

    def run(self) -> int:
        """Live; gives the exit code. Raises EnrolmentRefusedError."""
        # What can fail on this machine fails before the servers count on the pilot.
        self._cache = PilotCache(self._settings.cache, self._settings.share)
        self._guard = GuardLink(lambda: self.drain("no guard can be started"))
        folder = WorkFolder(self._settings.work)
        flight = SingleFlight(os.path.join(self._settings.work, "flights"))
        flight.clear_old()
        self._stager = Stager(
            flight,
            cache_for=self._cache.for_job,
            outputs=self._settings.outputs,
            sign=self._sign_uploads,
            report=self._report_checkpoint,
        )
        self._ends = CompletionQueue(self._ring, self._identity, folder.spool, on_settled=self._on_settled)
        self._ends.adopt(folder.adopt_leftovers())
        containers = self._settings.surroundings.containers
        remove_containers(containers.podman, folder.abandoned)
        self._images = ImageStore(containers)
        self._secrets = SecretProvider(self._settings.secrets, folder.path)
        self._identity.tell(self._cache.registration())
        try:
            enrolled_at = self._enrol()
            return 0 if enrolled_at is None else self._work(folder, enrolled_at)
        finally:
            self._guard.close()
            self._identity.close()
            self._cache.close()
            self._secrets.close()
            folder.remove()

    def _work(self, folder: WorkFolder, enrolled_at: float) -> int:
        settings = self._settings
        status = self._identity.status
        log.info("pilot %s on %s: %d slots, lease %.0f s", status.pilot, settings.host, settings.slots, status.lease)
        lease = self._lease = PilotLease(enrolled_at + status.lease, self._guard.extend_lease)
        self._logs = LogOrders(self._ring, self._identity, self._held)
        channel = ServerChannel(self._ring, self._identity, on_order=self._on_order, silence=settings.silence)
        heartbeat = HeartbeatSender(
            self._ring,
            self._identity,
            self._held,
            session=lambda: channel.session,
            on_cancel=self._cancel,
            on_drain=lambda: self.preempt("requested by the server"),
            lease=lease,
            on_answer=self._cache.told,
        )
        slots = [self._slot(number, folder, lease) for number in range(settings.slots)]
        requests = WorkRequests(
            self._held,
            may_claim=self._may_claim,
            time_left=self._lifetime.usable,
            on_claimed=self._on_claimed,
            cache=self._cache,
            nodes=1 if settings.nodes is None else settings.nodes.count,
        )
        claims = ClaimLoop(self._ring, self._identity, self._held, requests, self._ends, wait=settings.claim_wait)
        self._ends.ask_along(requests)
        channel.start()
        # Claims before the channel is open would be released with a death nobody could see.
        while not channel.opened.wait(0.1) and not self._draining.is_set():
            pass
        self._cache.start()
        for thread in (heartbeat, self._ends, *slots, claims):
            thread.start()
        self._watch(slots)
        claims.end()
        self._hand_back(self._held.withdraw_queued())
        self._held.close()
        claims.join()
        self._finish(slots)
        delivered = self._ends.flush(settings.end_wait)
        if delivered:
            self._say_goodbye()
        for ending in (heartbeat, channel, self._ends):
            ending.end()
        for ending in (heartbeat, channel, self._ends):
            ending.join(5)
        log.info(
            "ended after %d jobs%s", self._held.taken_in, "" if delivered else "; some completions are undelivered"
        )
        return 0 if delivered else 1

    def _slot(self, number: int, folder: WorkFolder, lease: PilotLease) -> Slot:
        return Slot(
            number,
            held=self._held,
            guard=self._guard,
            ends=self._ends,
            folder=folder,
            surroundings=self._settings.surroundings,
            host=self._settings.host,
            lease=lease,
            stager=self._stager,
            draining=self._draining.is_set,
            on_staged=self._say_begun,
            cache=self._cache,
            devices=self._devices,
            images=self._images,
            secrets=self._secrets,
            nodes=self._settings.nodes,
            told_to_go=lambda: self.signals > 0,
            enough_time=self._lifetime.enough_for,
        )

    def _registration(self) -> dict[str, Any]:
        settings = self._settings
        registration = {
            "host": settings.host,
            "site": settings.site,
            "slots": settings.slots,
            "resources": settings.resources,
            "time_left": settings.time_left,
            "batch_job": settings.batch_job,
            "version": __version__,
            "launch": settings.launch,
            "runtimes": settings.surroundings.containers.names,
            "nonce": secrets.token_hex(16),  # only with it can a lost registration be repeated
        }
        if settings.features:
            registration["features"] = settings.features
        if settings.devices:
            registration["devices"] = [device.to_dict() for device in settings.devices]
        return registration

    def _enrol(self) -> float | None:
        wait = 0.2
        while not self._draining.is_set():
            try:
                enrolled_at = self._identity.enrol()
            except RefusedError as refusal:
                raise EnrolmentRefusedError(str(refusal)) from refusal
            except (LinkError, KeyError, ValueError) as error:
                log.warning("not enrolled yet: %s", error)
            else:
                self._remove_secret()
                return enrolled_at
            self._draining.wait(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
            wait = min(wait * 2, 10.0)
        return None

    def _remove_secret(self) -> None:
        """The secret has been used: no payload shall find it."""
        path = self._settings.enrolment_file
        if path is not None:
            try:
                os.unlink(path)
            except OSError as error:
                log.info("the file of the used enrolment secret stays: %s", error)

    def _may_claim(self) -> int:
        if self._draining.is_set() or not self._lease.good() or self._ends.waiting() > _MOST_ENDS_WAITING:
            return 0
        if self._ends.behind():
            return 0
        if self._lifetime.over():
            return 0
        if self._settings.max_jobs is None:
            return 1 << 30
        return self._settings.max_jobs - self._held.taken_in

    def _on_claimed(self, jobs: list[ClaimedJob], request: SentRequest) -> None:
        # An answer that lay in its socket while this process was stopped is old: what it brings is handed back.
        welcome = self._lease.unbroken(request.sent) and not self._draining.is_set()
        self._hand_back(self._held.add(jobs, request, queue=welcome))
        log.debug("claimed %d", len(jobs))

    def _hand_back(self, unstarted: list[ClaimInHand]) -> None:
        for held in unstarted:
            reason = unbegun(held.stop_why)
            self._ends.put([make_completion(held.job, PayloadOutcome(), reason=reason, host=self._settings.host)])

    def _on_settled(self, claim: str, result: str) -> None:
        if result != "committed":
            log.info("the completion of claim %s was answered: %s", claim[:8], result)
        self._cache.settled(claim, result)
        held = self._held.get(claim)
        if held is not None:
            held.on_settled(result)
        self._held.settle(claim)

    def _on_order(self, kind: str, body: dict[str, Any]) -> None:
        if kind == "cancel":
            self._cancel(str(body.get("claim")))
        elif kind == "drain":
            self.preempt("requested by the server")
        elif kind == "log":
            self._logs.obey(body)
        elif kind == "trim":
            self._cache.make_room(int(body.get("bytes") or 0))
        else:
            log.info("an unknown command was ignored: %s", kind[:40])

    def _cancel(self, claim: str) -> None:
        held = self._held.to_cancel(claim)
        if held is not None and not held.stop_why:
            log.info("cancelling job %s", held.job.job)
            self._stop(held, "cancelled")

    def _stop(self, held: ClaimInHand, why: str) -> None:
        if not held.stop_why:
            held.stop_why = why
        if held.stop_call is not None:
            held.stop_call(held, held.stop_why)
        else:
            self._guard.stop(held.claim, held.stop_why)

    def _watch(self, slots: list[Slot]) -> None:
        """Wait for a reason to end."""
        settings = self._settings
        while not self._draining.is_set():
            self._wake.wait(0.1 if settings.idle_exit or settings.max_jobs else 0.5)
            self._identity.renew_in_time()
            self._hand_back(self._held.stuck())
            self._stop_in_time()
            for slot in slots:
                reclaimed = slot.reclaim()
                if reclaimed:
                    self._hand_back(reclaimed)
                    self._held.release(*reclaimed)
            if self._lifetime.over():
                self.drain("the allocation is about to end")
            elif settings.max_jobs is not None and self._held.taken_in >= settings.max_jobs:
                if not self._held.idle_for():
                    continue
                self.drain("the maximum number of jobs is reached")
            elif settings.idle_exit is not None and self._held.idle_for() >= settings.idle_exit:
                self.drain("there was no work")

    def _finish(self, slots: list[Slot]) -> None:
        """Wait for what runs, and stop it when it is time."""
        while any(slot.is_alive() for slot in slots):
            self._identity.renew_in_time()
            self._stop_in_time()
            for slot in slots:
                slot.join(0.1 / len(slots))

    def _stop_in_time(self) -> None:
        """Stop what has to end, or is to be continued elsewhere."""
        for held in self._held.running():
            checkpoint = held.job.checkpoint
            if self._stop_asked.is_set():
                self._stop(held, TOLD_TO_STOP)
            elif self._lifetime.must_stop(0.0 if checkpoint is None else checkpoint.grace):
                self._stop(held, TIME_OVER)
            elif checkpoint is not None and self._preempted.is_set():
                self._stop(held, TOLD_TO_STOP)

    def _say_begun(self, job: ClaimedJob) -> None:
        """Report that a job's inputs are staged; best effort, since only the display depends on it."""
        link = ServerLink(self._ring)
        try:
            self._identity.call(link, "POST", "/begun", {"job": job.job, "claim": job.claim}, timeout=5.0)
        except LinkError as error:
            log.info("the start of job %s could not be reported: %s", job.job, error)
        finally:
            link.close()

    def _sign_uploads(self, job: ClaimedJob, files: list[dict[str, Any]]) -> dict[str, str]:
        """Addresses to which outputs of a job may be put."""
        link = ServerLink(self._ring)
        try:
            body: dict[str, Any] = {"job": job.job, "claim": job.claim, "files": files}
            if job.checkpoint_number:
                body["checkpoint"] = job.checkpoint_number
            answer = self._identity.call(link, "POST", "/uploads", body, timeout=30.0)
        except LinkError as error:
            words = f"the servers gave no addresses: {error}"
            raise StagingError("transfer", words, again=error.can_retry, error="no addresses") from error
        finally:
            link.close()
        urls = answer.get("urls")
        return {str(path): str(url) for path, url in urls.items()} if isinstance(urls, dict) else {}

    def _report_checkpoint(self, job: ClaimedJob, checkpoint: dict[str, Any]) -> str:
        """Tell the servers of a committed checkpoint; gives the manifest of the one that counts now."""
        link = ServerLink(self._ring)
        try:
            about = {"job": job.job, "claim": job.claim, "generation": job.generation, "attempt": job.attempt}
            answer = self._identity.call(
                link, "POST", "/checkpoints", {**about, "checkpoint": checkpoint}, timeout=10.0
            )
        finally:
            link.close()
        return str(answer.get("path"))

    def _say_goodbye(self) -> None:
        link = ServerLink(self._ring)
        try:
            self._identity.call(link, "DELETE", "", None, timeout=5.0)
        except LinkError as error:
            log.info("the pilot could not deregister: %s", error)
        finally:
            link.close()
