"""One rank: the process that the site's launcher starts on a node, around the job's command.

It has no connection to its pilot, only a folder that all nodes share. There the pilot counts up while the ranks may run; a rank that
sees no change for a while ends its command, and so does one that sees that another rank has failed. So the ranks end together
whatever their launcher does, and when the pilot, its host or the launcher is killed. How a rank ended is written to the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from forestay_pilot.clock import steady
from forestay_pilot.process import libc
from forestay_pilot.process.process_tree import children_of

ALIVE = "alive"  # the pilot's count
OVER = "over"  # in the place of the count: the ranks are to end
FIRST = "first"  # which rank failed first
BEGUN, ENDED = ".begun", ".ended"
PATIENCE = 15.0  # seconds without a change of the count after which a rank ends
TURN = 0.25

TAIL_BYTES = 4096
_NUMBERS = ("SLURM_PROCID", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")  # what launchers call the number of a rank
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_NOT_STARTED = 127


def read_text(path: str) -> str:
    """What a small file of the shared folder says now; empty when it is not there."""
    try:
        with open(path, encoding="utf-8") as source:
            return source.read(65536)
    except OSError:
        return ""


def write_whole(path: str, text: str) -> None:
    """Write a file that nobody sees before it is whole."""
    new = f"{path}.{socket.gethostname()}.{os.getpid()}"
    with open(new, "w", encoding="utf-8") as target:
        target.write(text)
    os.replace(new, path)


class Rank:
    """One rank of a job."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.number = self._take_number()
        self._tail = bytearray()
        self._stopped_for = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()

    def run(self, command: list[str], work: str) -> int:
        """Run the command in the job's working folder to its end; gives the exit code for the launcher."""
        if not self._may_begin():
            why = self._why_over() or "there was no sign of the pilot"
            return self._end({"exit_code": None, "signal": None, "stopped_for": why}, _NOT_STARTED)
        libc.adopt_orphans()
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)
        os.environ.update(FORESTAY_RANK=str(self.number))
        try:
            self._process = process = subprocess.Popen(  # noqa: S603 - the job's own command
                command,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=libc.die_with_parent,  # no other thread runs yet
            )
        except OSError as error:
            self._tail += str(error).encode()
            return self._end({"exit_code": _NOT_STARTED, "signal": None}, _NOT_STARTED)
        threading.Thread(target=self._watch, daemon=True).start()
        assert process.stdout is not None  # noqa: S101
        self._pass_output(process.stdout.fileno())
        code = process.wait()
        self._over.set()
        self._kill_all()
        facts: dict[str, Any] = {"exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None}
        if self._stopped_for:
            facts["stopped_for"] = self._stopped_for
        return self._end(facts, code if code >= 0 else 128 - code)

    def _take_number(self) -> int:
        """The number that the launcher gave this rank, or else the first that is free."""
        numbers = [os.environ[name] for name in _NUMBERS if os.environ.get(name, "").isdigit()]
        number = int(numbers[0]) if numbers else 0
        while True:
            try:
                target = open(os.path.join(self._folder, f"{number}{BEGUN}"), "x", encoding="utf-8")  # noqa: SIM115
            except FileExistsError:
                if numbers:
                    raise
                number += 1
                continue
            with target:
                target.write(json.dumps({"rank": number, "host": self.host}))
            return number

    def _may_begin(self) -> bool:
        """Wait until the pilot's count changes: one that was killed before this began has left its last count there."""
        count, until = self._count(), steady() + PATIENCE
        while steady() < until and not self._why_over():
            now = self._count()
            if now and now != count:
                return True
            time.sleep(TURN / 5)
        return False

    def _count(self) -> str:
        return read_text(os.path.join(self._folder, ALIVE))

    def _why_over(self) -> str:
        if self._count() == OVER:
            return "the pilot ended it"
        first = read_text(os.path.join(self._folder, FIRST))
        return f"rank {first} failed" if first else ""

    def _watch(self) -> None:
        """End the command when it may not go on. A thread of its own: output that nobody takes does not hold it up."""
        count, changed = self._count(), steady()
        while not self._over.wait(TURN):
            if self._command_over():
                self._kill_all()  # what it left may hold its output open
                continue
            now = self._count()
            if now and now != count:
                count, changed = now, steady()
            why = self._why_over()
            if not why and steady() - changed > PATIENCE:
                why = "no sign of the pilot"
            if why:
                self._stopped_for = self._stopped_for or why
                self._kill_all()

    def _command_over(self) -> bool:
        process = self._process
        try:
            return process is None or os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _pass_on(self, number: int, _frame: object) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number)

    def _pass_output(self, source: int) -> None:
        """Give the command's output to the launcher, and keep its end."""
        while True:
            data = os.read(source, 65536)
            if not data:
                return
            self._tail += data
            del self._tail[:-TAIL_BYTES]
            with contextlib.suppress(OSError):  # the launcher is gone; that is not the command's affair
                while data:
                    data = data[os.write(1, data) :]

    def _kill_all(self) -> None:
        """Kill everything below this process; each death may hand over further children."""
        until = steady() + 5.0
        while steady() < until:
            below = children_of(os.getpid())
            for pid in below:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not below or threading.current_thread() is not threading.main_thread():
                return  # the first thread waits for the command, and then for what it left
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.01)

    def _end(self, facts: dict[str, Any], code: int) -> int:
        if code and not facts.get("stopped_for"):
            with contextlib.suppress(OSError), open(os.path.join(self._folder, FIRST), "x", encoding="utf-8") as first:
                first.write(str(self.number))
        tail = bytes(self._tail).decode(errors="replace")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        facts.update(rank=self.number, host=self.host, tail=tail, peak_memory=used.ru_maxrss * 1024)
        facts["cpu"] = used.ru_utime + used.ru_stime
        with contextlib.suppress(OSError):  # its pilot has removed the folder
            write_whole(os.path.join(self._folder, f"{self.number}{ENDED}"), json.dumps(facts))
        return code


def main() -> None:
    """Run as a rank that the launcher started. After the place of this package, the arguments are the folder of the ranks, the job's, and its command."""
    folder, work, *command = sys.argv[2:]
    sys.exit(Rank(folder).run(command, work))
