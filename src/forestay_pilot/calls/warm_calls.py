"""Function calls in a slot: sent to the slot's runner, a few ahead, and answered one by one."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.calls.runner import RESULT_FILE
from forestay_pilot.calls.warm_runner import ROOM, RunnerStartError, WarmRunner, runner_key
from forestay_pilot.link.held_claims import wants
from forestay_pilot.process.devices import HostDevices
from forestay_pilot.process.guarded_payload import DEVICE_HELD
from forestay_pilot.process.payload import BadClaimError, ClaimedJob, PayloadOutcome, Surroundings
from forestay_pilot.process.slot_end import EXECUTING, STOPPED, killed_from_outside, make_completion, unbegun
from forestay_pilot.staging.failed_stage import output_facts, staging_facts, start_facts, stopped_facts
from forestay_pilot.staging.outputs import (
    OutputFailedError,
    OutputMissingError,
    as_document,
    check_patterns,
)
from forestay_pilot.staging.staging import StagingError, StoppedError

if TYPE_CHECKING:
    from forestay_pilot.cache.pilot_cache import PilotCache
    from forestay_pilot.link.held_claims import ClaimInHand, HeldClaims
    from forestay_pilot.process.guard_link import GuardLink
    from forestay_pilot.process.work_folder import WorkFolder
    from forestay_pilot.staging.stager import Stager

log = logging.getLogger("forestay_pilot")

_LONG = 0.5  # what waits behind a call that takes longer is given back, for others to run
_SEEN = 0.05  # after this time the runner has certainly seen what was written for it


Deliver = Callable[["ClaimInHand", "dict[str, Any]"], None]


def _traceback(result: object) -> str:
    """The traceback of the exception that a function raised, for the log: people search logs for the cause, not results."""
    try:
        return str(json.loads(str(result))["error"]["traceback"])
    except (ValueError, KeyError, TypeError):
        return ""


class WarmCalls:
    """The calls of one slot, and the runner that is kept for them."""

    def __init__(
        self,
        *,
        held: HeldClaims,
        guard: GuardLink,
        folder: WorkFolder,
        surroundings: Surroundings,
        host: str,
        stager: Stager,
        draining: Callable[[], bool],
        on_staged: Callable[[ClaimedJob], None],
        cache: PilotCache,
        devices: HostDevices | None = None,
    ) -> None:
        self._on_staged = on_staged
        self._cache = cache
        self._stager = stager
        self._held = held
        self._guard = guard
        self._folder = folder
        self._surroundings = surroundings
        self._host = host
        self._draining = draining
        self._lock = threading.Lock()
        self._current: ClaimInHand | None = None
        self._current_number = 0
        self._current_since = 0.0
        self._number = 0
        self._todo: deque[ClaimInHand] = deque()
        self._sent: deque[tuple[ClaimInHand, int, int]] = deque()  # with the bytes and the number of each
        self._runner: WarmRunner | None = None
        self._devices = devices if devices is not None else HostDevices([])

    def close(self) -> None:
        """Let go of the runner."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()
            self._devices.give_back(runner.devices)

    def run(self, burst: list[ClaimInHand], deliver: Deliver, flush: Callable[[], None]) -> None:
        """Carry out calls that may share a runner; each end is delivered as it comes, and flushed before a longer wait."""
        todo = self._todo = deque(burst)
        again: set[str] = set()  # calls that were stopped with another one, and begin once more
        while todo:
            if self._draining() and len(todo) < len(burst):
                return  # the slot gives back what has no end
            first = todo[0]
            try:
                runner = self._ready(first.job)
            except RunnerStartError as failed:
                outcome = failed.outcome
                reason = STOPPED.get(outcome.stopped_for) or (
                    "not-started" if killed_from_outside(outcome) else "start-failed"
                )
                facts = {"stage": EXECUTING, "error": outcome.start_symbol, "file": outcome.start_part}
                self._deliver(todo.popleft(), deliver, outcome, reason=reason, words=str(failed), **facts)
            except (BadClaimError, OSError) as refused:
                self._deliver(todo.popleft(), deliver, PayloadOutcome(), **start_facts(refused))
            else:
                self._run_on(runner, todo, again, deliver, flush)
                if runner.devices:
                    self.close()  # others may use its devices until a call needs them again

    def _ready(self, job: ClaimedJob) -> WarmRunner:
        runner = self._runner
        if runner is not None and runner.alive and runner.key == runner_key(job):
            return runner
        self.close()
        taken = self._devices.take(wants(job, "gpus")) if self._devices else []
        if taken is None:
            raise RunnerStartError(PayloadOutcome(stopped_for=DEVICE_HELD))
        bound = self._devices.environment(taken)
        try:
            self._runner = WarmRunner(job, self._guard, self._folder, self._surroundings, taken, bound)
        except BaseException:
            self._devices.give_back(taken)
            raise
        return self._runner

    def _run_on(
        self,
        runner: WarmRunner,
        todo: deque[ClaimInHand],
        again: set[str],
        deliver: Deliver,
        flush: Callable[[], None],
    ) -> None:
        """Use a runner until the calls or the runner are at their end."""
        sent = self._sent = deque()
        under_way = 0
        while True:
            lines: list[bytes] = []
            while todo and not runner.stopping:
                held = todo[0]
                if held.stop_why:
                    reason = unbegun(held.stop_why)
                    self._deliver(todo.popleft(), deliver, PayloadOutcome(), reason=reason)
                    continue
                try:
                    line = self._line(held, self._number)
                except StoppedError:
                    continue  # its stop is seen at the top
                except StagingError as error:
                    self._deliver(todo.popleft(), deliver, PayloadOutcome(), **staging_facts(error))
                    continue
                except (BadClaimError, OSError) as error:
                    self._deliver(todo.popleft(), deliver, PayloadOutcome(), **start_facts(error))
                    continue
                if sent and under_way + len(line) > ROOM:
                    break
                with self._lock:
                    if held.given_back:
                        continue
                    sent.append((todo.popleft(), len(line), self._number))
                    self._number += 1
                under_way += len(line)
                if len(sent) == 1:
                    self._begin(runner, held, sent[0][2])
                lines.append(line)
            if not sent:
                return
            if lines:
                runner.write(b"".join(lines))
            answer = runner.read(flush)
            if answer is None:
                self._after_death(runner, sent, todo, again, deliver)
                return
            with self._lock:
                held, size, _ = sent.popleft()
            under_way -= size
            self._end_current()
            if "skipped" in answer:
                if not held.given_back:
                    todo.append(held)  # the long call ended just then
                if not held.given_back or not sent:
                    runner.begin_below(None)
                continue
            if sent and not sent[0][0].given_back:
                self._begin(runner, sent[0][0], sent[0][2])
            self._answered(held, answer, deliver, noted=held.claim in again)

    def reclaim(self) -> list[ClaimInHand]:
        """Take back claims that wait behind a long call; called periodically by another thread."""
        with self._lock:
            runner, current, number = self._runner, self._current, self._current_number
            if runner is None or current is None or len(self._sent) + len(self._todo) < 2:
                return []
            if time.monotonic() - self._current_since < _LONG:
                return []
            runner.begin_below(number + 1)
        time.sleep(_SEEN)
        with self._lock:
            if self._current is not current or runner is not self._runner or runner.begun() != number:
                return []  # it has just ended; what the runner skipped is sent again
            behind = [held for held, _, _ in list(self._sent)[1:] if not held.given_back]
            behind += self._todo
            self._todo.clear()
            for held in behind:
                held.given_back = True
            return behind

    def _begin(self, runner: WarmRunner, held: ClaimInHand, number: int) -> None:
        """The runner turns to this call, now or in a moment."""
        self._held.begin(held)
        held.devices = [device.name for device in runner.devices]
        if held.job.wall is not None:
            runner.limit(held.job.wall)
        with self._lock:
            self._current, self._current_number, self._current_since = held, number, time.monotonic()
            held.stop_call = self._stop
            why = held.stop_why
        if why:
            self._stop(held, why)

    def _end_current(self) -> None:
        with self._lock:
            held, self._current = self._current, None
        if held is not None and held.job.wall is not None and self._runner is not None:
            self._runner.limit(None)

    def _stop(self, held: ClaimInHand, why: str) -> None:
        with self._lock:
            if self._current is held and self._runner is not None:
                self._runner.stop(why)

    def _after_death(
        self,
        runner: WarmRunner,
        sent: deque[tuple[ClaimInHand, int, int]],
        todo: deque[ClaimInHand],
        again: set[str],
        deliver: Deliver,
    ) -> None:
        """The runner died: of its first unanswered call, or because it was stopped for one that had just answered."""
        self._end_current()
        outcome = runner.outcome
        self.close()
        with self._lock:
            held = sent.popleft()[0]
            todo.extendleft(hand for hand, _, _ in reversed(sent) if not hand.given_back)
            sent.clear()
        if held.given_back:
            return
        if outcome.stopped_for and runner.stopping and not held.stop_why:
            again.add(held.claim)
            todo.appendleft(held)
            return
        reason = STOPPED.get(outcome.stopped_for) or ("signal" if outcome.signal or outcome.stopped_for else "exit")
        words = f"the runner ended during this call: {outcome.start_error or 'see its log above'}"
        self._deliver(held, deliver, outcome, reason=reason, words=words)

    def _line(self, held: ClaimInHand, number: int) -> bytes:
        job = held.job
        call = job.parameters.get("call")
        if not isinstance(call, dict):
            raise BadClaimError("the parameter 'call' must be a function call")
        patterns = check_patterns(job.outputs)
        own = held.has_folder = bool(patterns or job.inputs)
        folder = self._folder.job_folder(job.claim) if own else self._folder.job_place(job.claim)
        if job.inputs:
            self._stager.bring(held, folder)
            self._on_staged(job)
        request = {
            "claim": job.claim,
            "number": number,
            "call": call,
            "folder": folder,
            "enter": own,
            "environment": {
                "FORESTAY_JOB": job.job,
                "FORESTAY_ATTEMPT": str(job.attempt),
                "FORESTAY_FENCE": job.fence,
                "FORESTAY_INDEX": "" if job.index is None else str(job.index),
                "FORESTAY_OUTPUTS": folder,
            },
        }
        return json.dumps(request, ensure_ascii=False).encode() + b"\n"

    def _answered(self, held: ClaimInHand, answer: dict[str, Any], deliver: Deliver, *, noted: bool) -> None:
        job = held.job
        words = "it was started twice: its runner was first stopped together with another call" if noted else ""
        ok = bool(answer["ok"])
        outcome = PayloadOutcome(
            exit_code=0 if ok else None,
            started=float(answer["started"]),
            wall=float(answer["wall"]),
            cpu=float(answer["cpu"]),
            peak_memory=int(answer["peak_memory"]),
            log_tail=str(answer["log"]) + ("" if ok else _traceback(answer["result"])),
            log_bytes=int(answer["log_bytes"]),
        )
        self._held.note_call(outcome.wall)
        patterns = job.outputs
        if answer["stored"]:
            patterns, held.has_folder = [*job.outputs, RESULT_FILE], True
        if not ok or not patterns:
            reason = "ok" if ok else "exception"
            self._deliver(held, deliver, outcome, reason=reason, words=words, result=answer["result"])
            return
        try:
            manifest = self._stager.commit(held, self._folder.job_place(job.claim), patterns)
        except StoppedError:
            self._deliver(held, deliver, outcome, **stopped_facts(held.stop_why))
        except (OutputMissingError, OutputFailedError, BadClaimError, OSError) as error:
            self._deliver(held, deliver, outcome, **output_facts(error))
        else:
            self._cache.offer(job, self._folder.job_place(job.claim), manifest)
            place = as_document(manifest)
            result = answer["result"]
            self._deliver(held, deliver, outcome, reason="ok", words=words, manifest=place, result=result)

    def _deliver(self, held: ClaimInHand, deliver: Deliver, outcome: PayloadOutcome, **facts: Any) -> None:
        deliver(held, make_completion(held.job, outcome, host=self._host, **facts))
