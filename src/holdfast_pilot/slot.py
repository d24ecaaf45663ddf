"""A slot: takes one claim after the other, runs its payload, commits its outputs, hands on its end."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from holdfast_pilot.clock import stamp
from holdfast_pilot.guard_link import NO_GUARD
from holdfast_pilot.outputs import (
    OutputFailedError,
    OutputMissingError,
    as_document,
    check_patterns,
    commit_outputs,
)
from holdfast_pilot.payload import BadClaimError, ClaimedJob, Outcome, Surroundings, make_payload, safe_part

if TYPE_CHECKING:
    from holdfast_pilot.ends import Ends
    from holdfast_pilot.guard_link import GuardLink
    from holdfast_pilot.held_claims import Held, HeldClaims
    from holdfast_pilot.lease import Lease
    from holdfast_pilot.work_folder import WorkFolder

log = logging.getLogger("holdfast_pilot")

# What an end says when the pilot stopped a payload. Everything else that was stopped died by a signal, and
# its log says why: only a real cancel may be called one, since the servers close the job for it.
_STOPPED = {"cancelled": "cancelled", "wall-limit": "wall-limit", NO_GUARD: "not-started"}


def make_end(
    job: ClaimedJob,
    outcome: Outcome,
    *,
    reason: str,
    host: str,
    manifest: dict[str, object] | None = None,
    words: str = "",
) -> dict[str, Any]:
    """The end of a claim as the servers want it; ``ok`` only for reason ``ok``."""
    ok = reason == "ok"
    return {
        "job": job.job,
        "generation": job.generation,
        "attempt": job.attempt,
        "claim": job.claim,
        "outcome": "ok" if ok else "fault",
        "reason": "exit" if ok else reason,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "started": stamp(outcome.started) if outcome.started else None,
        "wall": round(outcome.wall, 6),
        "cpu": round(outcome.cpu, 6),
        "peak_memory": outcome.peak_memory,
        "log_tail": outcome.log_tail + (f"\n[pilot: {words[:2000]}]\n" if words else ""),
        "log_bytes": outcome.log_bytes,
        "manifest": manifest,
        "host": host,
    }


class Slot(threading.Thread):
    """One thread a slot; a job's trouble ends that job and nothing else."""

    def __init__(
        self,
        number: int,
        *,
        held: HeldClaims,
        guard: GuardLink,
        ends: Ends,
        folder: WorkFolder,
        outputs: str,
        surroundings: Surroundings,
        host: str,
        lease: Lease,
        draining: Callable[[], bool],
    ) -> None:
        super().__init__(name=f"slot-{number}", daemon=True)
        self._held = held
        self._guard = guard
        self._ends = ends
        self._folder = folder
        self._outputs = outputs
        self._surroundings = surroundings
        self._host = host
        self._lease = lease
        self._draining = draining

    def run(self) -> None:
        """Work until the pilot ends and the queue is empty."""
        while True:
            held = self._held.take()
            if held is None:
                return
            try:
                end = self._run(held)
            except Exception as error:
                log.exception("job %s could not be run", held.job.job)
                end = make_end(held.job, Outcome(), reason="start-failed", host=self._host, words=repr(error))
            try:
                self._ends.put(end)
            except Exception:
                log.exception("the end of job %s could not be kept", held.job.job)
            self._held.release(held)
            try:
                self._folder.clear(held.claim)
            except Exception:
                log.exception("the working folder of job %s could not be cleared", held.job.job)

    def _run(self, held: Held) -> dict[str, Any]:
        job = held.job
        good = self._lease.wait_good(lambda: bool(held.stop_why) or self._draining())
        if held.stop_why or not good:
            reason = _STOPPED.get(held.stop_why, "not-started")
            return make_end(job, Outcome(), reason=reason, host=self._host)
        try:
            patterns = check_patterns(job.outputs)
            name = safe_part(job.claim)
            folder = self._folder.job_folder(name)
            held.log_path = self._folder.log_path(name)
            payload = make_payload(job, folder, held.log_path, self._surroundings)
        except (BadClaimError, OSError) as error:
            return make_end(job, Outcome(), reason="start-failed", host=self._host, words=str(error))
        began = time.monotonic()
        outcome = self._guard.run(payload, stop_why=lambda: held.stop_why)
        log.debug("job %s attempt %d ended after %.3f s", job.job, job.attempt, time.monotonic() - began)
        return self._judge(job, outcome, folder, patterns)

    def _judge(self, job: ClaimedJob, outcome: Outcome, folder: str, patterns: list[str]) -> dict[str, Any]:
        if outcome.start_error:
            return make_end(job, outcome, reason="start-failed", host=self._host, words=outcome.start_error)
        if outcome.stopped_for in _STOPPED:
            return make_end(job, outcome, reason=_STOPPED[outcome.stopped_for], host=self._host)
        if outcome.signal is not None or outcome.stopped_for:
            # Also one that answers SIGTERM with a good exit code: it was stopped half way.
            return make_end(job, outcome, reason="signal", host=self._host)
        if outcome.exit_code != 0:
            return make_end(job, outcome, reason="exit", host=self._host)
        if not patterns:
            return make_end(job, outcome, reason="ok", host=self._host)
        try:
            manifest = commit_outputs(job, folder, patterns, self._outputs)
        except OutputMissingError as error:
            return make_end(job, outcome, reason="output-missing", host=self._host, words=str(error))
        except (OutputFailedError, BadClaimError, OSError) as error:
            return make_end(job, outcome, reason="output-failed", host=self._host, words=str(error))
        return make_end(job, outcome, reason="ok", host=self._host, manifest=as_document(manifest))
