"""A slot: takes one claim after another, runs its payload, commits its outputs, and passes on its completion."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.calls.warm_calls import WarmCalls
from forestay_pilot.calls.warm_runner import runner_key
from forestay_pilot.clock import steady
from forestay_pilot.containers.container_cleanup import after_container
from forestay_pilot.containers.image_error import ImageError
from forestay_pilot.containers.runtimes import NoContainerError
from forestay_pilot.job_secrets.secret_error import SecretError
from forestay_pilot.link.held_claims import wants
from forestay_pilot.nodes.rank import PATIENCE
from forestay_pilot.nodes.ranks import Ranks, SeveralNodes
from forestay_pilot.process.devices import HostDevices
from forestay_pilot.process.guard_link import GUARD_LOST
from forestay_pilot.process.guarded_payload import DEVICE_HELD
from forestay_pilot.process.payload import (
    BadClaimError,
    ClaimedJob,
    Payload,
    PayloadOutcome,
    Surroundings,
    make_payload,
    safe_part,
)
from forestay_pilot.process.slot_end import (
    EXECUTING,
    STOPPED,
    TOLD_TO_STOP,
    WENT_FOR,
    killed_from_outside,
    make_completion,
    unbegun,
    with_cleanup,
)
from forestay_pilot.staging.failed_stage import (
    image_facts,
    output_facts,
    secret_facts,
    staging_facts,
    start_facts,
    stopped_facts,
)
from forestay_pilot.staging.outputs import (
    OutputFailedError,
    OutputMissingError,
    as_document,
    check_patterns,
)
from forestay_pilot.staging.staging import StagingError, StoppedError, most_telling
from forestay_pilot.staging.task_plan import found_outputs, lay_out, read_report, runner_command

if TYPE_CHECKING:
    from forestay_pilot.cache.pilot_cache import PilotCache
    from forestay_pilot.claims.completion_queue import CompletionQueue
    from forestay_pilot.containers.image_store import ImageStore
    from forestay_pilot.job_secrets.job_secrets import SecretProvider
    from forestay_pilot.link.held_claims import ClaimInHand, HeldClaims
    from forestay_pilot.link.lease import PilotLease
    from forestay_pilot.process.guard_link import GuardLink
    from forestay_pilot.process.work_folder import WorkFolder
    from forestay_pilot.staging.checkpoints import CheckpointSaver
    from forestay_pilot.staging.stager import Stager

log = logging.getLogger("forestay_pilot")

_GATHER = 0.02
_NOTHING: Mapping[str, str] = MappingProxyType({})
_DEVICE_WAIT = 2.0  # seconds for which a job waits for devices that were free when it was requested
_DEVICE_TURN = 0.05
# Whoever ends a batch job ends everything in it, one process after the other, and the payload may be the first. So the
# end of one that something outside killed is told only when this pilot has outlived it for so many seconds.
_AFTERMATH = 2.0
# Failures after which a task's client may need the existing files.
_OF_THE_TASK = ("exit", "signal", "wall-limit")
# Stops after which another attempt continues.
_CONTINUED = ("wall-limit", "pilot-stopped")


class Slot(threading.Thread):
    """One thread a slot; a job's trouble ends that job and nothing else."""

    def __init__(
        self,
        number: int,
        *,
        held: HeldClaims,
        guard: GuardLink,
        ends: CompletionQueue,
        folder: WorkFolder,
        surroundings: Surroundings,
        host: str,
        lease: PilotLease,
        stager: Stager,
        draining: Callable[[], bool],
        on_staged: Callable[[ClaimedJob], None],
        cache: PilotCache,
        devices: HostDevices | None = None,
        images: ImageStore,
        secrets: SecretProvider,
        nodes: SeveralNodes | None = None,
        enough_time: Callable[[float | None], bool] = lambda _wall: True,
        told_to_go: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(name=f"slot-{number}", daemon=True)
        self._held = held
        self._guard = guard
        self._ends = ends
        self._folder = folder
        self._surroundings = surroundings
        self._host = host
        self._lease = lease
        self._stager = stager
        self._draining = draining
        self._on_staged = on_staged
        self._cache = cache
        self._devices = devices if devices is not None else HostDevices([])
        self._images = images
        self._secrets = secrets
        self._nodes = nodes
        self._enough_time = enough_time
        self._told_to_go = told_to_go
        self._calls = WarmCalls(
            held=held,
            guard=guard,
            folder=folder,
            surroundings=surroundings,
            host=host,
            stager=stager,
            draining=draining,
            on_staged=on_staged,
            cache=cache,
            devices=self._devices,
        )

    def run(self) -> None:
        """Work until the pilot ends and the queue is empty."""
        while True:
            held = self._held.take()
            if held is None:
                self._calls.close()
                return
            if held.job.warm:
                self._run_calls(held)
                continue
            self._calls.close()  # its memory is this job's now
            try:
                end = self._run_with_image(held)
            except Exception as error:
                log.exception("job %s could not be run", held.job.job)
                stage = EXECUTING if held.begun else ""
                end = make_completion(
                    held.job, PayloadOutcome(), reason="start-failed", host=self._host, words=repr(error), stage=stage
                )
            if held.begun:
                self._held.note_job(held, ok=end["outcome"] == "ok")
            self._hand_on([(held, end)])

    def _hand_on(self, ended: list[tuple[ClaimInHand, dict[str, Any]]]) -> None:
        """Keep ends until they are delivered, and make room."""
        for held, end in ended:
            if held.devices:
                end["devices"] = held.devices
            if held.staged:
                end["staging"] = most_telling(held.staged)
        leaving = [held for held, _ in ended]
        try:
            self._ends.put([end for _, end in ended], kept=lambda: self._held.release(*leaving))
        except Exception:
            log.exception("the completions of %d jobs could not be kept", len(ended))
            self._held.release(*leaving)
        for held, end in ended:
            if held.has_folder:
                self._cache.release(held.claim)
                self._clear(held, end)

    def _clear(self, held: ClaimInHand, end: dict[str, Any]) -> None:
        """Remove the working folder. The completion does not wait for it; a failure is reported after the completion."""
        try:
            error = self._folder.clear(held.claim)
            if error is not None:
                log.warning("the working folder of job %s could not be removed: %s", held.job.job, error)
                self._ends.put([with_cleanup(end, error)])
        except Exception:
            log.exception("the working folder of job %s could not be removed", held.job.job)

    def reclaim(self) -> list[ClaimInHand]:
        """Claims to give back because they wait behind a long call."""
        try:
            return self._calls.reclaim()
        except (OSError, ValueError):
            return []  # its runner has just ended

    def _run_calls(self, first: ClaimInHand) -> None:
        """Carry out a call, and with it those behind it in the queue that are as short as the last ones were."""
        burst = [first, *self._held.take_like(first, runner_key)]
        ended: list[tuple[ClaimInHand, dict[str, Any]]] = []
        delivered: set[str] = set()
        since = time.monotonic()

        def flush() -> None:
            nonlocal since
            if ended:
                self._hand_on(ended)
                ended.clear()
            since = time.monotonic()

        def deliver(held: ClaimInHand, end: dict[str, Any]) -> None:
            ended.append((held, end))
            delivered.add(held.claim)
            # Completions of very short calls are sent together; none waits for a long one.
            if time.monotonic() - since > _GATHER:
                flush()

        try:
            oldest = min(held.since for held in burst)
            good = self._lease.wait_good(oldest, lambda: bool(first.stop_why) or self._draining())
            if good or first.stop_why:
                self._calls.run(burst, deliver, flush)
        except Exception as error:
            log.exception("calls could not be executed")
            self._calls.close()
            for held in burst:
                if held.claim not in delivered and not held.given_back:
                    end = make_completion(
                        held.job,
                        PayloadOutcome(),
                        reason="start-failed",
                        host=self._host,
                        words=repr(error),
                        stage=EXECUTING if held.job.external else "",
                    )
                    deliver(held, end)
        for held in burst:
            if held.claim not in delivered and not held.given_back:
                reason = unbegun(held.stop_why)
                deliver(held, make_completion(held.job, PayloadOutcome(), reason=reason, host=self._host))
        flush()

    def _run_with_image(self, held: ClaimInHand) -> dict[str, Any]:
        """Run a job in its image, which is kept until then; the completion names the image, and no value of a secret."""
        try:
            end = self._run(held)
            if held.image is not None and held.image.digest:
                end["image"] = held.image.digest
            return end if held.secrets is None else held.secrets.redacted(end)
        finally:
            if held.image is not None:
                held.image.release()
            if held.secrets is not None:
                held.secrets.remove()
                held.secrets = None

    def _run(self, held: ClaimInHand) -> dict[str, Any]:
        job = held.job
        good = self._lease.wait_good(held.since, lambda: bool(held.stop_why) or self._draining())
        if held.stop_why or not good:
            reason = unbegun(held.stop_why)
            return make_completion(job, PayloadOutcome(), reason=reason, host=self._host)
        try:
            patterns = check_patterns(job.outputs)
            check_patterns(job.checkpoint_files)
            name = safe_part(job.claim)
            folder = self._folder.job_folder(name)
            held.log_path = self._folder.log_path(name)
            if "executors" in job.task:
                job = held.job = replace(
                    job, command=runner_command(job.task, folder, self._surroundings.containers.apptainer)
                )
            self._obtain_image(held)
            payload = self._payload(held, folder)
            if job.inputs or job.begin_from:
                self._stage(held, folder)
            if job.inputs or held.image is not None:
                self._on_staged(job)
            if "executors" in job.task:
                lay_out(job.task, folder, apptainer=self._surroundings.containers.apptainer)
            elif job.task:
                return self._bring(held, folder)
            if job.secrets:
                held.secrets = self._secrets.provide(job, lambda: bool(held.stop_why))
                payload = self._payload(held, folder)
        except StoppedError:
            reason = unbegun(held.stop_why)
            return make_completion(job, PayloadOutcome(), reason=reason, host=self._host)
        except StagingError as error:
            return make_completion(job, PayloadOutcome(), host=self._host, **staging_facts(error))
        except SecretError as error:
            return make_completion(job, PayloadOutcome(), host=self._host, **secret_facts(error))
        except ImageError as error:
            return make_completion(job, PayloadOutcome(), host=self._host, **image_facts(error, job.container))
        except (BadClaimError, NoContainerError, OSError) as error:
            return make_completion(job, PayloadOutcome(), host=self._host, **start_facts(error))
        if not self._enough_time(job.wall if job.checkpoint is None else None):
            # It waited for others or for its inputs, and what is left is not enough for it any more.
            return make_completion(job, PayloadOutcome(), reason=unbegun(held.stop_why), host=self._host)
        began = time.monotonic()
        held.begun = True
        checkpoints = self._stager.checkpoints(held, folder)
        with checkpoints or contextlib.nullcontext():
            outcome = self._execute(held, payload, folder)
        if held.image is not None:
            after_container(held.image, payload, outcome)
        log.debug("job %s attempt %d ended after %.3f s", job.job, job.attempt, time.monotonic() - began)
        if job.task:
            return self._judge_task(held, outcome, folder)
        end = self._judge(held, outcome, folder, patterns)
        return end if checkpoints is None else self._with_checkpoint(held, end, checkpoints)

    def _with_checkpoint(self, held: ClaimInHand, end: dict[str, Any], checkpoints: CheckpointSaver) -> dict[str, Any]:
        """The end of a job that continues from checkpoints: with the last one if it was stopped, and without any left if it is done."""
        if end["outcome"] == "ok":
            held.on_settled = lambda result: (
                self._stager.remove_checkpoints(held.job) if result == "committed" else None
            )
            return end
        committed = checkpoints.commit_last() if end["reason"] in _CONTINUED else None
        if committed is None:
            return end
        held.on_settled = lambda result: checkpoints.settled(committed, counts=result != "superseded")
        return {**end, "checkpoint": committed.as_document()}

    def _payload(
        self, held: ClaimInHand, folder: str, *, bound: Mapping[str, str] = _NOTHING, devices: Sequence[str] = ()
    ) -> Payload:
        return make_payload(
            held.job,
            folder,
            held.log_path,
            self._surroundings,
            held.image,
            bound=bound,
            devices=devices,
            secrets=held.secrets,
        )

    def _execute(self, held: ClaimInHand, payload: Payload, folder: str) -> PayloadOutcome:
        """Run a payload with as many devices of its own as it requests."""
        if self._nodes is not None:
            return self._run_ranks(self._nodes, held, payload)
        if not self._devices:
            return self._guard.run(payload, stop_why=lambda: held.stop_why)
        until = steady() + _DEVICE_WAIT
        while True:
            taken = self._devices.take(wants(held.job, "gpus"))
            outcome = PayloadOutcome(stopped_for=DEVICE_HELD)
            if taken is not None:
                try:
                    held.devices = [device.name for device in taken]
                    bound = self._devices.environment(taken)
                    payload = self._payload(held, folder, bound=bound, devices=held.devices)
                    outcome = self._guard.run(payload, stop_why=lambda: held.stop_why)
                finally:
                    self._devices.give_back(taken)
            if outcome.stopped_for != DEVICE_HELD or held.stop_why or steady() > until:
                return outcome
            # A neighbour was quicker. Its payload, or what is left of it, may be over in a moment.
            held.devices = []
            time.sleep(_DEVICE_TURN)

    def _run_ranks(self, nodes: SeveralNodes, held: ClaimInHand, payload: Payload) -> PayloadOutcome:
        """Run a payload on all nodes. With external effects, the last sign is so early that no rank outlives the lease."""

        def may_live() -> bool:
            return not held.job.external or steady() + PATIENCE < self._lease.until

        with Ranks(self._folder.ranks_folder(held.claim), may_live) as ranks:
            started = nodes.started(payload, ranks.folder, wants(held.job, "cpus"))
            outcome = self._guard.run(started, stop_why=lambda: held.stop_why)
            return ranks.judge(outcome, nodes.count)

    def _bring(self, held: ClaimInHand, folder: str) -> dict[str, Any]:
        """Deliver the committed outputs of a task to the places that its client named."""
        job = held.job
        try:
            sent = self._stager.bring_outputs(held, folder)
        except StoppedError:
            return make_completion(job, PayloadOutcome(), host=self._host, **stopped_facts(held.stop_why))
        except (OutputFailedError, OSError) as error:
            return make_completion(job, PayloadOutcome(), host=self._host, **output_facts(error))
        return {**make_completion(job, PayloadOutcome(exit_code=0), reason="ok", host=self._host), "task": sent}

    def _judge_task(self, held: ClaimInHand, outcome: PayloadOutcome, folder: str) -> dict[str, Any]:
        """The completion of a task: with the results of its executors, and its outputs even if one of them failed."""
        plan, report = held.job.task, read_report(folder)
        end: dict[str, Any] = {}
        try:
            patterns = found_outputs(plan, folder, all_needed=outcome.exit_code == 0)
            end = self._judge(held, outcome, folder, patterns)
            if end["outcome"] == "failure" and end["reason"] in _OF_THE_TASK and patterns:
                end["manifest"] = as_document(self._stager.commit(held, folder, patterns))
        except OutputMissingError as error:
            end = make_completion(held.job, outcome, host=self._host, **output_facts(error))
        except (OutputFailedError, StoppedError, OSError) as error:
            log.warning("the outputs of the failed job %s could not be kept: %s", held.job.job, error)
        end = end or self._judge(held, outcome, folder, [])
        return {**end, "task": report} if report else end

    def _stage(self, held: ClaimInHand, folder: str) -> None:
        """Stage the inputs; the job starts only when all are staged."""
        began = time.monotonic()
        self._stager.bring(held, folder)
        log.debug("job %s: %d inputs in %.3f s", held.job.job, len(held.job.inputs), time.monotonic() - began)

    def _obtain_image(self, held: ClaimInHand) -> None:
        """Pull the image of a job that names one, if it is not on this host; the transfer is reported like that of an input."""
        name = held.job.container
        if not name:
            return
        try:
            held.image = self._images.obtain(name, lambda: bool(held.stop_why))
        except ImageError as error:
            held.staged.append({"name": name, "kind": "image", "failed": [str(error)[:300]]})
            raise
        held.staged.append(held.image.report())

    def _ended_with_us(self, outcome: PayloadOutcome) -> bool:
        """Whether a payload died since this pilot is being ended: of a SIGKILL it does not live to say so."""
        if not killed_from_outside(outcome) and outcome.stopped_for != GUARD_LOST:
            return False
        over = time.monotonic() + _AFTERMATH
        while not self._told_to_go() and time.monotonic() < over:
            time.sleep(0.05)
        return self._told_to_go()

    def _judge(self, held: ClaimInHand, outcome: PayloadOutcome, folder: str, patterns: list[str]) -> dict[str, Any]:
        job = held.job
        if outcome.start_error:
            return make_completion(
                job,
                outcome,
                reason="start-failed",
                host=self._host,
                words=outcome.start_error,
                stage=EXECUTING,
                error=outcome.start_symbol,
                file=outcome.start_part,
            )
        if outcome.stopped_for in STOPPED:
            reason, error = STOPPED[outcome.stopped_for], WENT_FOR.get(outcome.stopped_for, "")
            return make_completion(job, outcome, reason=reason, host=self._host, error=error)
        if self._ended_with_us(outcome):
            return make_completion(job, outcome, reason="pilot-stopped", host=self._host, error=WENT_FOR[TOLD_TO_STOP])
        if outcome.signal is not None or outcome.stopped_for:
            # Also one that answers SIGTERM with a good exit code: it was stopped half way.
            return make_completion(job, outcome, reason="signal", host=self._host)
        if outcome.exit_code != 0:
            return make_completion(job, outcome, reason="exit", host=self._host)
        if not patterns:
            return make_completion(job, outcome, reason="ok", host=self._host)
        try:
            manifest = self._stager.commit(held, folder, patterns)
        except StoppedError:
            return make_completion(job, outcome, host=self._host, **stopped_facts(held.stop_why))
        except (OutputMissingError, OutputFailedError, BadClaimError, OSError) as error:
            return make_completion(job, outcome, host=self._host, **output_facts(error))
        self._cache.offer(job, folder, manifest)
        return make_completion(job, outcome, reason="ok", host=self._host, manifest=as_document(manifest))
