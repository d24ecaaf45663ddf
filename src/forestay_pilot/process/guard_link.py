"""The pilot's end of the socket to its guard.

A guard that dies takes its payloads with it; the pilot reports them and starts another.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Callable

from forestay_pilot.clock import steady
from forestay_pilot.process import libc
from forestay_pilot.process.payload import Payload, PayloadOutcome
from forestay_pilot.process.process_tree import OWN_SESSIONS

log = logging.getLogger("forestay_pilot")

# The guard must find this package also when it lies in a zip file, and nothing else from outside.
_ENTRY = "import sys; sys.path.insert(0, sys.argv[1]); from forestay_pilot.process.guard import main; main()"
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


NO_GUARD = "no-guard"
GUARD_LOST = "guard-lost"
_TURN = 0.02
_TURNS = 500  # in all ten seconds for a guard to come


class WaitingPayload:
    """A payload that the guard runs, until it reports the end."""

    def __init__(self, *, external: bool, on_done: Callable[[], None] = lambda: None) -> None:
        self.external = external
        self.done = threading.Event()
        self.pid = 0
        self.outcome: PayloadOutcome | None = None
        self._on_done = on_done

    def end(self, outcome: PayloadOutcome) -> None:
        self.outcome = outcome
        self.done.set()
        self._on_done()


class GuardLink:
    """Runs payloads through the guard; one call a slot, any number at once."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost  # called when no guard can be had: this pilot can run nothing
        self._lock = threading.Lock()
        self._waiting: dict[str, WaitingPayload] = {}
        self._lease_until: float | None = None
        self._closing = False
        self._ready = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._reader: threading.Thread | None = None
        with self._lock:
            self._launch()
        # In short waits, here and in `start`: a pilot that was itself stopped meanwhile has not waited.
        if not any(self._ready.wait(_TURN) for _ in range(_TURNS)):
            self.close()
            raise OSError("the payload guard does not start on this machine")

    def run(self, payload: Payload, *, stop_why: Callable[[], str]) -> PayloadOutcome:
        """Run a payload to its end.

        ``stop_why`` is asked once the guard has the payload: a stop that was ordered a moment before could
        not reach the guard, since there was nothing to stop yet.
        """
        waiting = WaitingPayload(external=payload.external)
        if not self.start(payload, waiting):
            return PayloadOutcome(stopped_for=NO_GUARD)
        why = stop_why()
        if why:
            self.stop(payload.claim, why)
        waiting.done.wait()
        return waiting.outcome or PayloadOutcome(start_error="the guard returned no result")

    def start(self, payload: Payload, waiting: WaitingPayload) -> bool:
        """Pass a payload to the guard; False when no guard can be started."""
        for _ in range(_TURNS):
            if self._begin(payload, waiting):
                return True
            if self._closing:
                break
            time.sleep(_TURN)
        self._on_lost()
        return False

    def _begin(self, payload: Payload, waiting: WaitingPayload) -> bool:
        """Pass a payload to the guard; False when there is none now, and then the payload has certainly not begun."""
        with self._lock:
            try:
                if self._socket is None and not self._closing:
                    self._launch()
                if not self._ready.is_set():
                    return False
                self._waiting[payload.claim] = waiting
                if payload.external:
                    self._send({"do": "lease", "until": self._lease_until})
                self._send({"do": "start", **vars(payload)})
            except OSError as error:
                log.warning("the guard cannot be reached: %s", error)
                self._waiting.pop(payload.claim, None)
                return False
            return True

    def stop(self, claim: str, why: str) -> None:
        """Ask for a payload's end: SIGTERM to its group, after its grace SIGKILL."""
        with self._lock, contextlib.suppress(OSError):
            self._send({"do": "stop", "claim": claim, "why": why})

    def limit(self, claim: str, wall: float | None) -> None:
        """Change the wall limit of a payload, from now on."""
        with self._lock, contextlib.suppress(OSError):
            self._send({"do": "limit", "claim": claim, "wall": wall})

    def extend_lease(self, until: float) -> None:
        """Tell until when (on the steady clock) payloads with external effects may run."""
        with self._lock, contextlib.suppress(OSError):
            self._lease_until = until
            if any(waiting.external for waiting in self._waiting.values()):
                self._send({"do": "lease", "until": until})

    def close(self) -> None:
        """End the guard, and with it whatever still runs."""
        with self._lock:
            self._closing = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        if self._reader is not None:
            self._reader.join(15)

    def _send(self, request: dict[str, Any]) -> None:
        if self._socket is None:
            raise OSError("there is no guard")
        self._socket.sendall(json.dumps(request).encode() + b"\n")

    def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = OWN_SESSIONS.start(
                [sys.executable, "-I", "-S", "-c", _ENTRY, _ROOT, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={},
            )
        self._socket = ours
        self._ready.clear()
        self._reader = threading.Thread(target=self._read, args=(ours, self._process), name="guard-link", daemon=True)
        self._reader.start()

    def _read(self, link: socket.socket, process: subprocess.Popen[bytes]) -> None:
        with link.makefile("rb") as lines, contextlib.suppress(OSError):
            for line in lines:
                try:
                    self._hear(json.loads(line))
                except Exception:
                    log.exception("the guard sent an unknown message")
        link.close()
        self._after_death(process)

    def _hear(self, event: dict[str, Any]) -> None:
        kind = event.pop("event")
        if kind == "ready":
            self._ready.set()
            return
        claim = event.pop("claim")
        with self._lock:
            waiting = self._waiting.get(claim)
            if waiting is None:
                return
            if kind == "started":
                waiting.pid = event["pid"]
                return
            del self._waiting[claim]
        waiting.end(PayloadOutcome(**event))

    def _after_death(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        with self._lock:
            orphaned, self._waiting = self._waiting, {}
            self._socket = None
            self._ready.clear()
            for waiting in orphaned.values():
                if waiting.pid:
                    with contextlib.suppress(OSError):
                        os.killpg(waiting.pid, signal.SIGKILL)
            self._end_orphans()
        if not self._closing:
            log.error("the guard died (%s); the next payload gets another", process.returncode)
        for waiting in orphaned.values():
            waiting.end(
                PayloadOutcome(
                    signal=int(signal.SIGKILL),
                    stopped_for=GUARD_LOST,
                    log_tail="[pilot: the guard of this payload died, and the payload with it]",
                )
            )

    @staticmethod
    def _end_orphans() -> None:
        """Kill and reap what a dead guard left to the pilot; each death may hand over further children."""
        give_up = steady() + 5.0
        while libc.adopts_orphans() and steady() < give_up:
            orphans = OWN_SESSIONS.orphans()
            if not orphans:
                return
            for pid in orphans:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.01)
