"""The guard: a small process that starts, watches and ends the payloads of one pilot.

It is a process of its own for four reasons. It never holds the token, so no fork of it can show one. It has
one thread, so forking is safe, and "die with the parent" (which Linux ties to the *thread* that forked)
means what it says. It sees the pilot's death as the end of a socket and kills every payload with all its
descendants at once. And when the pilot is stopped or starved it still keeps wall limits and the leases of
payloads with external effects.

Requests come as lines of JSON: ``start``, ``stop``, ``lease``, and ``limit``, which changes the wall limit of a payload. Answers go the same way: ``ready``, ``started``, ``end``.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any

from forestay_pilot.clock import steady
from forestay_pilot.process import libc
from forestay_pilot.process.device_locks import lock_devices, unlock
from forestay_pilot.process.guarded_payload import DEVICE_HELD, FAILURE_TAIL_BYTES, TAIL_BYTES, GuardedPayload
from forestay_pilot.process.kernel_kills import oom_kills
from forestay_pilot.process.payload_cgroup import PayloadCgroup, make_payload_cgroup
from forestay_pilot.process.payload_start import become_payload, no_signals_ignored, start_error
from forestay_pilot.process.process_tree import children_of, descendants_of
from forestay_pilot.process.spawner import Spawner, find_spawner

_READ = 65536
_LEASE_GRACE = 2.0  # a server frees an orphan no sooner than ten seconds after its lease
_NAP = 1.0
_MOMENT = 0.02  # after which a payload is announced and read from: a pipe holds what it writes meanwhile
_SIGKILLED = 128 + signal.SIGKILL
_NOT_CONTINUED = ("cancelled", "lease-lost")  # stops that leave no time for a checkpoint
_LINGER = 5.0  # how long an end waits for killed members of its group to be gone


def _send_signal(run: GuardedPayload, number: int) -> None:
    """Signal a payload's group, or the payload alone while it has not made its group yet."""
    try:
        os.killpg(run.pid, number)
    except ProcessLookupError:
        with contextlib.suppress(OSError):
            os.kill(run.pid, number)
    except OSError:
        pass


def _send_stop(run: GuardedPayload, number: int) -> None:
    """The same for a stop that leaves it time. The first process of some containers would die of it and take the others with it at once."""
    below = descendants_of(run.pid) if run.watched else []
    if not below:
        _send_signal(run, number)
    for pid in below:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _disk_left(folder: str) -> int | None:
    try:
        room = os.statvfs(folder)
    except OSError:
        return None
    return room.f_bavail * room.f_frsize


class Guard:
    """The loop over requests, outputs, deaths and deadlines."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._inbox = b""
        self._outbox = bytearray()
        self._runs: dict[int, GuardedPayload] = {}  # by process id, until the end is reported
        self._new: list[GuardedPayload] = []  # the oldest first; in their first moment, or over in it
        self._undying: set[int] = set()  # strays that no signal ended, reported with their payload's end
        self._lease_until: float | None = None
        self._selector = selectors.DefaultSelector()
        self._alive = True
        self._pid = os.getpid()
        self._spawner: Spawner | None = find_spawner()

    def run(self) -> None:
        """Serve until the pilot closes the socket or dies, then leave no payload behind."""
        wake_read, wake_write = os.pipe()
        for descriptor in (wake_read, wake_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._link.settimeout(0)
        self._selector.register(self._link, selectors.EVENT_READ, self._on_link)
        self._selector.register(wake_read, selectors.EVENT_READ, lambda _: self._on_deaths(wake_read))
        self._tell({"event": "ready"})
        while self._alive:
            for key, mask in self._selector.select(self._until_next()):
                key.data(mask)
            self._keep_deadlines()
        self._leave_nothing()

    def _on_link(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if not mask & selectors.EVENT_READ:
            return
        try:
            data = self._link.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._alive = False
            return
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, request: dict[str, Any]) -> None:
        if request["do"] == "start":
            self._start(request)
        elif request["do"] == "lease":
            self._keep_deadlines()  # a lease that had passed is not made good by the next one
            self._lease_until = request["until"]
        elif request["do"] == "limit":
            for run in self._runs.values():
                if run.claim == request["claim"]:
                    run.wall_until = None if request["wall"] is None else steady() + request["wall"]
        elif request["do"] == "stop":
            for run in self._runs.values():
                if run.claim == request["claim"]:
                    self._stop(run, request["why"], run.grace)

    def _start(self, request: dict[str, Any]) -> None:
        try:
            locks = lock_devices(request["devices"])
        except OSError as error:
            self._tell({"event": "end", "claim": request["claim"], "stopped_for": DEVICE_HELD, "log_tail": str(error)})
            return
        leaf = make_payload_cgroup(request["group"], memory=request["memory"])
        pipes: list[int] = []
        try:
            pipes += os.pipe()
            pid = self._spawn(request, pipes[1]) if leaf is None and not locks else 0
            if not pid:
                pipes += os.pipe()
                pid = self._fork(request, pipes, leaf, locks)
        except OSError as error:
            unlock([*pipes, *locks])
            if leaf is not None:
                leaf.remove()
            self._tell({"event": "end", "claim": request["claim"], **start_error(error, "process")})
            return
        unlock(pipes[1::2])
        output, exec_error = pipes[0], pipes[2] if len(pipes) > 2 else -1
        os.set_blocking(output, False)
        run = self._runs[pid] = GuardedPayload(request, pid, output, exec_error, leaf, locks)
        self._new.append(run)

    def _introduce(self) -> None:
        """Announce and read from payloads that outlived their first moment; short ones are over by then, and cost less."""
        late = steady() - _MOMENT
        while self._new and (self._new[0].end is not None or self._new[0].began <= late):
            run = self._new.pop(0)
            if run.output >= 0:
                self._selector.register(run.output, selectors.EVENT_READ, lambda _, run=run: self._on_output(run))
            if run.end is None:
                self._tell({"event": "started", "claim": run.claim, "pid": run.pid})

    def _leave_output(self, run: GuardedPayload) -> None:
        with contextlib.suppress(KeyError):  # one that was over in its first moment
            self._selector.unregister(run.output)

    def _fork(self, request: dict[str, Any], pipes: list[int], leaf: PayloadCgroup | None, locks: list[int]) -> int:
        pid = os.fork()
        if pid == 0:
            if self._spawner is not None:
                self._spawner.close()  # the end by which the guard's death is seen is the guard's alone
            become_payload(request, self._pid, pipes[1], pipes[3], leaf, locks)
        return pid

    def _spawn(self, request: dict[str, Any], output: int) -> int:
        """Start a payload without a copy of this process, if it is of the common kind; 0 if it must be forked, which then tells any error."""
        if self._spawner is None or not request["at_hand"] or request["stdin"] or request["stdout"]:
            return 0
        try:
            os.chdir(request["folder"])
            return self._spawner.start(request["program"], request["argv"], request["environment"], output)
        except (OSError, ValueError):
            return 0
        finally:
            os.chdir("/")

    def _on_output(self, run: GuardedPayload) -> bool:
        """Take what the payload has written; false when there is no more for now."""
        if run.output < 0:
            return False  # its end was dealt with earlier in the same round
        try:
            data = os.read(run.output, _READ)
        except BlockingIOError:
            return False
        if data:
            run.keep(data)
            return True
        self._leave_output(run)
        os.close(run.output)
        run.output = -1
        return False

    def _on_deaths(self, wake: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wake, _READ)
        stray_died = False
        while True:
            try:
                seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if seen is None:
                break
            run = self._runs.get(seen.si_pid)
            if run is None or run.end is not None:
                os.waitpid(seen.si_pid, 0)
                stray_died = True
            else:
                self._on_leader_death(run)
        ended = [run for run in self._runs.values() if run.end is not None]
        for run in ended:
            self._finish_if_gone(run)
        if stray_died or any(run.pid in self._runs for run in ended):
            self._sweep()  # also beside a payload whose end has to wait for its own processes

    def _on_leader_death(self, run: GuardedPayload) -> None:
        # The leader is still a zombie here, so its group's number cannot belong to anyone else.
        with contextlib.suppress(OSError):
            os.killpg(run.pid, signal.SIGKILL)
        _, status, usage = os.wait4(run.pid, 0)
        wall = steady() - run.began
        for _ in range(64):
            if not self._on_output(run):
                break
        killed = os.WIFSIGNALED(status)
        run.end = {
            "event": "end",
            "claim": run.claim,
            "exit_code": None if killed else os.WEXITSTATUS(status),
            "signal": os.WTERMSIG(status) if killed else None,
            "started": run.started,
            "wall": wall,
            "cpu": usage.ru_utime + usage.ru_stime,
            "peak_memory": usage.ru_maxrss * 1024,
        }
        data = os.read(run.exec_error, 4096) if run.exec_error >= 0 else b""
        if data:
            run.end.update(json.loads(data))
        if not run.measured:
            run.end.update(cpu=0.0, peak_memory=0)
        if run.leaf is not None:
            run.end["peak_memory"] = run.leaf.peak() or run.end["peak_memory"]
        if status:
            run.end["disk_left"] = _disk_left(run.folder)
            run.end["oom_kills"] = self._oom_kills(run, killed=killed and os.WTERMSIG(status) == signal.SIGKILL)
        run.linger_until = steady() + _LINGER
        if not killed and not run.stopped_for:
            run.settle_until = steady() + run.settle

    def _oom_kills(self, run: GuardedPayload, *, killed: bool) -> int | None:
        """The kernel's kills while it ran. Without a group of its own they may be a neighbour's, unless it was alone or was
        killed itself."""
        if run.leaf is not None:
            killed_inside = run.leaf.oom_kills()
            # A group of version 1 does not count the kills in those below it, where Podman's containers are. One that was at its
            # limit and of which a process was ended by SIGKILL was ended for that.
            inferred = run.settle and run.end is not None and run.end["exit_code"] == _SIGKILLED and run.leaf.was_full()
            return 1 if inferred and not killed_inside else killed_inside
        count = oom_kills()
        if count is None or run.oom_kills is None or not (killed or len(self._runs) == 1):
            return None
        return max(0, count - run.oom_kills)

    def _finish_if_gone(self, run: GuardedPayload) -> None:
        """Tell the end once nothing of the payload can still write, or after a bounded wait."""
        with contextlib.suppress(OSError):
            os.killpg(run.pid, signal.SIGKILL)
            if steady() < run.linger_until:
                return
        if steady() < run.settle_until and self._strays():
            return
        if run.leaf is not None and not run.leaf.remove() and steady() < run.linger_until:
            return  # something that left the session is still in the group; it has just been killed
        left = self._sweep()
        if left and steady() < run.linger_until:
            return
        assert run.end is not None  # noqa: S101
        if run.strays:
            run.note(f"{len(run.strays)} processes that had left its session were killed after its end")
        if left:
            self._undying |= left
            run.end["left_running"] = len(left)
            run.note(f"{len(left)} processes of it could not be ended: {', '.join(map(str, sorted(left)))}")
        if run.output >= 0:
            self._leave_output(run)
        run.end_output()
        run.end["stopped_for"] = run.stopped_for
        well = run.end["exit_code"] == 0 and not run.stopped_for
        run.end["log_tail"] = bytes(run.tail[-(TAIL_BYTES if well else FAILURE_TAIL_BYTES) :]).decode(errors="replace")
        run.end["log_bytes"] = run.log_bytes
        run.close()
        del self._runs[run.pid]
        self._tell(run.end)

    def _sweep(self) -> set[int]:
        """Kill processes that left their payload's session and outlived it; returns those that are not gone yet.

        A payload that lives adopts its orphans itself, so every other child of the guard is of one that is over.
        """
        strays = self._strays()
        if any(run.end is not None and steady() < run.settle_until for run in self._runs.values()):
            return strays  # their payload is unknown; they are ended a little later
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for run in self._runs.values():
            if run.end is not None:
                run.strays |= strays
        return strays

    def _strays(self) -> set[int]:
        """The guard's children that are no payload's first process, but what such ones have left."""
        children = set(children_of(self._pid))
        self._undying &= children
        return children - self._runs.keys() - self._undying

    def _stop(self, run: GuardedPayload, why: str, grace: float) -> None:
        if run.end is not None or run.kill_at is not None:
            return
        number = signal.SIGTERM
        if run.checkpoint_signal and why not in _NOT_CONTINUED:
            number, grace = signal.Signals(run.checkpoint_signal), run.checkpoint_grace
        run.stopped_for = why
        run.kill_at = steady() + grace
        run.note(f"stopped: {why}")
        _send_stop(run, number)
        _send_stop(run, signal.SIGCONT)

    def _deadlines(self, run: GuardedPayload) -> list[float]:
        if run.end is not None:
            return [min(run.linger_until, steady() + 0.02)]
        if run.kill_at is not None:
            return [run.kill_at]
        lease_until = [] if run.wall_until is None else [run.wall_until]
        if run.external and self._lease_until is not None:
            lease_until.append(self._lease_until)
        return lease_until

    def _until_next(self) -> float | None:
        times = [at for run in self._runs.values() for at in self._deadlines(run)]
        times += [run.began + _MOMENT for run in self._new[:1]]
        if not times:
            return None
        # A wait stops while the host sleeps, but a deadline does not: no wait is longer than this.
        return min(_NAP, max(0.0, min(times) - steady()))

    def _keep_deadlines(self) -> None:
        self._introduce()
        now = steady()
        for run in list(self._runs.values()):
            if run.end is not None:
                self._finish_if_gone(run)
            elif run.kill_at is not None:
                if now >= run.kill_at:
                    run.kill_at = now + 1.0
                    _send_signal(run, signal.SIGKILL)
            elif run.wall_until is not None and now >= run.wall_until:
                self._stop(run, "wall-limit", run.grace)
            elif run.external and self._lease_until is not None and now >= self._lease_until:
                self._stop(run, "lease-lost", min(run.grace, _LEASE_GRACE))

    def _tell(self, event: dict[str, Any]) -> None:
        self._outbox += json.dumps(event).encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        """Send without ever waiting: a stopped pilot must not stop the guard."""
        try:
            while self._outbox:
                del self._outbox[: self._link.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:
            self._alive = False
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        if self._selector.get_key(self._link).events != events:
            self._selector.modify(self._link, events, self._on_link)

    def _leave_nothing(self) -> None:
        for run in self._runs.values():
            with contextlib.suppress(OSError):
                os.killpg(run.pid, signal.SIGKILL)
            if run.leaf is not None:
                run.leaf.kill()
        give_up = steady() + 2 * _LINGER
        while steady() < give_up:
            for pid in children_of(self._pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            try:
                # Each death may hand its children to the guard; they are next.
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.005)
            except ChildProcessError:
                break
        for run in self._runs.values():
            run.remove_secrets()
            if run.leaf is not None:
                run.leaf.remove()


def main() -> None:
    """Serve on the socket whose number is the last argument."""
    # Blocked, not ignored: a batch system's signals to all are the pilot's business, and a payload that is stopped
    # before it has begun must still find the signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    libc.forbid_dumps()
    libc.adopt_orphans()
    no_signals_ignored()
    link = socket.socket(fileno=int(sys.argv[-1]))
    link.set_inheritable(False)
    Guard(link).run()
