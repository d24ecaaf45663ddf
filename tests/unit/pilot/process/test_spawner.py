"""Programs that are started without a copy of the process that starts them."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forestay_pilot.process.spawner import find_spawner

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
    done = subprocess.run([sys.executable, "-c", PRELUDE + script], capture_output=True, text=True, check=False)
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
