"""A runner as the pilot sees it: a long-running payload with a pipe for calls and one for results.

Both ways are named pipes that the pilot itself holds open at both ends, so that opening them never waits. The runner's end is told
by the guard, and comes to the reader of answers as a line of its own.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import struct
import threading
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.calls.runner import TURN_FILE, TURNS
from forestay_pilot.process.device_locks import VARIABLE as DEVICES
from forestay_pilot.process.guard_link import NO_GUARD, WaitingPayload
from forestay_pilot.process.payload import BadClaimError, ClaimedJob, Payload, PayloadOutcome, Surroundings, as_text
from forestay_pilot.process.payload_cgroup import leaf_of

if TYPE_CHECKING:
    from forestay_pilot.process.devices import Device
    from forestay_pilot.process.guard_link import GuardLink
    from forestay_pilot.process.work_folder import WorkFolder

# The user's interpreter must find this package also when it lies in a zip file.
_ENTRY = "import sys; sys.path.insert(0, sys.argv[1]); from forestay_pilot.calls.runner import main; main()"
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_START_SECONDS = 120.0  # a cold interpreter on a busy shared file system takes long
_AT_ONCE = 20  # milliseconds
_NO_LIMIT = (1 << 63) - 1
_GONE = b'\n{"gone": true}\n'
ROOM = 48 * 1024  # bytes of calls under way: a pipe takes 64 KiB without waiting


def runner_key(job: ClaimedJob) -> str:
    """Calls with the same key may share a runner: the same owner, interpreter and environment."""
    gpus = job.resources.get("gpus") or 0
    return json.dumps([job.owner, job.tenant, job.command, job.environment, job.external, gpus], sort_keys=True)


class RunnerStartError(Exception):
    """No runner could be started; carries how it ended."""

    def __init__(self, outcome: PayloadOutcome) -> None:
        super().__init__(outcome.start_error or "the runner ended before it was ready")
        self.outcome = outcome


class WarmRunner:
    """One runner, from its start to its end; used by one thread, stopped by any."""

    def __init__(
        self,
        job: ClaimedJob,
        guard: GuardLink,
        folder: WorkFolder,
        surroundings: Surroundings,
        devices: Sequence[Device] = (),
        bound: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.key = runner_key(job)
        self.devices = list(devices)
        self.name = f"runner-{uuid.uuid4().hex}"
        self.stopping = False
        self._gone = threading.Event()  # its end was reported to the reader of answers
        self._guard = guard
        self._folder = folder
        self._waiting = WaitingPayload(external=job.external, on_done=self._on_gone)
        home = folder.job_folder(self.name)
        calls, answers = os.path.join(home, ".calls"), os.path.join(home, ".answers")
        for path in (calls, answers):
            os.mkfifo(path, 0o600)
        with open(os.path.join(home, TURN_FILE), "xb+") as turn:
            turn.write(TURNS.pack(-1, _NO_LIMIT))
            turn.flush()
            self._turn = mmap.mmap(turn.fileno(), TURNS.size)
        self._calls = os.open(calls, os.O_RDWR)
        self._answers_end = os.open(answers, os.O_RDWR)
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._look = select.poll()
        self._look.register(self._answers_end, select.POLLIN)
        payload = Payload(
            claim=self.name,
            argv=[*_words(job), "-c", _ENTRY, _ROOT],
            environment=_environment(job, self.name, surroundings, bound),
            folder=home,
            log=folder.log_path(self.name),
            wall=_START_SECONDS,
            grace=surroundings.grace,
            external=job.external,
            log_cap=surroundings.log_cap,
            stdin=calls,
            stdout=answers,
            group=leaf_of(surroundings.groups, self.name),
            memory=job.memory,
            devices=[device.name for device in devices],
        )
        if not guard.start(payload, self._waiting):
            self._waiting.end(PayloadOutcome(stopped_for=NO_GUARD))
        if self.read() is None:
            self.close()
            raise RunnerStartError(self.outcome)
        guard.limit(self.name, None)

    @property
    def alive(self) -> bool:
        return not self._waiting.done.is_set() and not self.stopping

    @property
    def outcome(self) -> PayloadOutcome:
        """How it ended, once it has."""
        return self._waiting.outcome or PayloadOutcome(start_error="the runner has not ended")

    def write(self, line: bytes) -> None:
        """Send a call; no more than ROOM may be under way."""
        left = memoryview(line)
        while left:
            left = left[os.write(self._calls, left) :]

    def read(self, on_wait: Callable[[], None] = lambda: None) -> dict[str, Any] | None:
        """The next answer; none when the runner has ended. ``on_wait`` is called if it does not come at once."""
        while True:
            while not self._lines:
                if not self._look.poll(_AT_ONCE):
                    on_wait()
                *lines, self._rest = (self._rest + os.read(self._answers_end, 65536)).split(b"\n")
                self._lines.extend(lines)
            try:
                answer = json.loads(self._lines.popleft())
            except ValueError:
                continue  # cut off by its death
            if isinstance(answer, dict):
                return None if "gone" in answer else answer

    def stop(self, why: str) -> None:
        """End it, with whatever it is doing."""
        self.stopping = True
        self._guard.stop(self.name, why)

    def begun(self) -> int:
        """The number of the last call that began."""
        number: int = TURNS.unpack_from(self._turn)[0]
        return number

    def begin_below(self, number: int | None) -> None:
        """Begin no call with this number or a higher one; any when none is named."""
        struct.pack_into("=q", self._turn, 8, _NO_LIMIT if number is None else number)

    def limit(self, wall: float | None) -> None:
        """The wall limit of the call that begins now."""
        self._guard.limit(self.name, wall)

    def close(self) -> None:
        """End it and clear away what it leaves."""
        if not self._waiting.done.is_set():
            self.stop("no longer needed")
            self._waiting.done.wait(30)
        # Its end is told by another thread: into a closed descriptor, it would reach the runner that has got the same number meanwhile.
        self._gone.wait(30)
        for descriptor in (self._calls, self._answers_end):
            os.close(descriptor)
        self._answers_end = -1
        self._turn.close()
        self._folder.clear(self.name)

    def _on_gone(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._answers_end, _GONE)
        self._gone.set()


def _words(job: ClaimedJob) -> list[str]:
    words = job.command
    if not words or not all(isinstance(word, str) and word and "\0" not in word for word in words):
        raise BadClaimError("the command of the runner is not a list of words")
    return [str(word) for word in words]


def _environment(job: ClaimedJob, name: str, surroundings: Surroundings, bound: Mapping[str, str]) -> dict[str, str]:
    environment = dict(surroundings.inherited)
    environment.update({str(key): as_text(value) for key, value in job.environment.items()})
    environment.pop(DEVICES, None)
    environment.update(bound)
    environment["FORESTAY_CLAIM"] = name  # by this the guard knows what a runner's functions started
    for key, value in environment.items():
        if not key or "=" in key or "\0" in key or "\0" in value:
            raise BadClaimError(f"the environment variable {key!r} cannot be set")
    return environment
