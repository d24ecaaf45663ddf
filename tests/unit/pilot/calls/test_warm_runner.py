"""The end of a runner: told to its own reader, and to no other."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import cast

from forestay_pilot.calls.warm_runner import WarmRunner
from forestay_pilot.process.guard_link import GuardLink, WaitingPayload
from forestay_pilot.process.payload import ClaimedJob, Payload, PayloadOutcome, Surroundings
from forestay_pilot.process.work_folder import WorkFolder

JOB = ClaimedJob("j", 0, 1, "c", "lab", "n", None, {}, {}, [sys.executable], {}, [], external=False)


class LateGuard:
    """A fake guard whose runner is ready at once, and whose thread is slow to tell that it has ended."""

    def __init__(self) -> None:
        self.tells = threading.Event()

    def start(self, payload: Payload, waiting: WaitingPayload) -> bool:
        self.waiting = waiting
        Path(payload.stdout).write_bytes(b'{"ready": true}\n')
        return True

    def limit(self, claim: str, wall: float | None) -> None:
        """Nothing is limited."""

    def stop(self, claim: str, why: str) -> None:
        threading.Thread(target=self._end, args=(PayloadOutcome(signal=15, stopped_for=why),)).start()

    def _end(self, outcome: PayloadOutcome) -> None:
        told = self.waiting._on_done

        def late() -> None:
            self.tells.wait()
            told()

        self.waiting._on_done = late
        self.waiting.end(outcome)


def test_a_runner_is_closed_when_its_end_was_told_and_not_before(tmp_path: Path) -> None:
    """Its descriptors have the next runner's numbers as soon as they are closed."""
    guard = LateGuard()
    runner = WarmRunner(JOB, cast("GuardLink", guard), WorkFolder(str(tmp_path)), Surroundings())
    closing = threading.Thread(target=runner.close)
    closing.start()
    assert guard.waiting.done.wait(10)
    closing.join(0.2)
    assert closing.is_alive()
    guard.tells.set()
    closing.join(10)
    assert not closing.is_alive()
