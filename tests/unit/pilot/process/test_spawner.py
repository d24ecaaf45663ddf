"""Programs that are started without a copy of the process that starts them."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forestay_pilot.process.spawner import Spawner, find_spawner

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="payloads are forked on other machines")

# In a process of one thread, as a guard is.
PRELUDE = """
import os, resource, signal
from forestay_pilot.process.spawner import find_spawner
spawner = find_spawner()
assert spawner is not None
"""


def run(script: str) -> str:
    """What a script prints that has a spawner."""
    words = [sys.executable, "-c", PRELUDE + script]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_one_starts_many_programs() -> None:
    script = """
before = len(os.listdir("/proc/self/fd"))
for number in range(300):
    pid = spawner.start("/bin/sh", ["sh", "-c", f"exit {number % 7}"], {"NUMBER": str(number)}, 2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == number % 7
print(len(os.listdir("/proc/self/fd")) - before)
"""
    assert run(script) == "0"


def test_a_start_copies_no_memory() -> None:
    """A fork of it would fault again on what both touch."""
    script = """
held = bytearray(os.urandom(1 << 20)) * 64
for many in (1, 50):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(many):
        os.waitpid(spawner.start("/bin/true", ["true"], {}, 2), 0)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 50 < 25)
"""
    assert run(script) == "True"


def test_what_does_not_start_leaves_nothing() -> None:
    script = """
print(spawner.start("/bin/nowhere", ["nowhere"], {}, 2))
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no child")
"""
    assert run(script).split("\n") == ["0", "no child"]


def test_a_child_whose_starter_is_dead_does_not_become_the_program(tmp_path: Path) -> None:
    """It might have died before its death counted. Here its end of the socket is gone while it still waits to see that."""
    script = f"""
spawner._far.close()
pid = spawner.start("/usr/bin/touch", ["touch", {str(tmp_path / "began")!r}], {{}}, 2)
print(os.WTERMSIG(os.waitpid(pid, 0)[1]))
"""
    assert int(run(script)) == signal.SIGPIPE
    assert not (tmp_path / "began").exists()


def test_the_signals_of_the_starter_stay_as_they_were() -> None:
    script = """
signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM})
os.waitpid(find_spawner().start("/bin/true", ["true"], {}, 2), 0)
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGTERM}, signal.getsignal(signal.SIGPIPE).name)
"""
    assert run(script) == "True SIG_IGN"


def test_other_machines_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert find_spawner() is None


def test_a_machine_where_it_fails_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial is in a process of its own, since what is wrong may end it."""
    monkeypatch.setattr("forestay_pilot.process.spawner.Spawner.start", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    assert find_spawner() is None


def test_a_machine_where_only_the_first_start_works_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial has both its starts in one child."""
    start, starts = Spawner.start, []

    def once(spawner: Spawner, *words: Any) -> int:
        starts.append(words)
        if len(starts) > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return start(spawner, *words)

    monkeypatch.setattr(Spawner, "start", once)
    assert find_spawner() is None


# A filter of system calls as containers have them: x86-64's clone, if the parent is to wait for it, is answered by `action`.
FILTER = """
import ctypes, struct
from forestay_pilot.process.spawner import find_spawner
CLONE, VFORK, ALLOW = 56, 0x4000, 0x7FFF0000
def instruction(code, yes, no, value):
    return struct.pack("HBBI", code, yes, no, value)
program = (
    instruction(0x20, 0, 0, 0) + instruction(0x15, 0, 3, CLONE) + instruction(0x20, 0, 0, 16)
    + instruction(0x45, 0, 1, VFORK) + instruction(0x06, 0, 0, {action}) + instruction(0x06, 0, 0, ALLOW)
)
text = ctypes.create_string_buffer(program, len(program))
class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_void_p))
library = ctypes.CDLL(None)
assert library.prctl(38, 1, 0, 0, 0) == 0
assert library.prctl(22, 2, ctypes.byref(Filter(len(program) // 8, ctypes.addressof(text))), 0, 0) == 0
print(find_spawner())
"""


@pytest.mark.parametrize("action", [0x00050001, 0x00030000, 0x80000000], ids=["refused", "trapped", "killed"])
def test_a_container_whose_filter_refuses_such_a_start_has_none(action: int) -> None:
    script = FILTER.replace("{action}", str(action))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("None", 0), done.stderr


def test_a_start_that_the_kernel_refuses_is_none() -> None:
    """Too many words for a program, or too many processes for a user. The next one succeeds."""
    script = """
huge = ["true", *["x" * 100_000] * 100]
print(spawner.start("/bin/true", huge, {}, 2), spawner.start("/bin/true", ["true"], {"HUGE": "x" * (1 << 21)}, 2))
for text in ("a\\0b", "\\ud800"):
    try:
        spawner.start("/bin/true", ["true", text], {}, 2)
    except ValueError:
        print("refused")
print(os.waitpid(spawner.start("/bin/true", ["true"], {}, 2), 0)[1])
"""
    assert run(script).split("\n") == ["0 0", "refused", "refused", "0"]


def test_signals_that_come_all_the_time_harm_no_start() -> None:
    """Handlers of the starter run on stacks that are as short as a step's."""
    script = """
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
for number in range(300):
    pid = spawner.start("/bin/sh", ["sh", "-c", f"exit {number % 7}"], {}, 2)
    while True:
        try:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == number % 7
            break
        except InterruptedError:
            continue
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(seen) > 10)
"""
    assert run(script) == "True"
