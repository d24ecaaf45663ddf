"""The pilot's end of the socket to its guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.pilot.fake_server import until

from forestay_pilot.process import guard_link
from forestay_pilot.process.guard_link import GuardLink
from forestay_pilot.process.process_tree import is_settled

# Two seconds for the guard to come; it comes after 0.8, and before that the pilot is stopped for three.
PILOT = """
import os, signal, threading
from forestay_pilot.process import guard_link
guard_link._TURNS = 100
launch = guard_link.GuardLink._launch
def later(self):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    threading.Timer(0.8, launch, (self,)).start()
guard_link.GuardLink._launch = later
guard_link.GuardLink(lambda: None).close()
"""


def test_a_pilot_that_is_stopped_while_its_guard_starts_does_not_give_it_up() -> None:
    pilot = subprocess.Popen([sys.executable, "-c", PILOT], stderr=subprocess.PIPE)
    _, status = os.waitpid(pilot.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    time.sleep(3)
    pilot.send_signal(signal.SIGCONT)
    _, data = pilot.communicate(timeout=60)
    assert pilot.returncode == 0, data.decode()


def test_a_process_without_an_environment_or_at_its_end_is_not_settled() -> None:
    with subprocess.Popen(["sleep", "60"], env={}) as bare:
        until(lambda: Path(f"/proc/{bare.pid}/cmdline").read_bytes().startswith(b"sleep"), "the program to run")
        assert not is_settled(bare.pid)
        bare.kill()
        os.waitid(os.P_PID, bare.pid, os.WEXITED | os.WNOWAIT)
        assert not is_settled(bare.pid)
    assert not is_settled(bare.pid)
    assert is_settled(os.getpid())


def test_an_orphan_that_is_becoming_another_program_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no environment at the first look, so that nobody can tell whose it is."""
    claims = iter(["", "claim-1"])
    orphan = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(guard_link, "children_of", lambda _pid: [orphan.pid] if orphan.poll() is None else [])
    monkeypatch.setattr(guard_link, "claim_of", lambda _pid: next(claims, "claim-1"))
    monkeypatch.setattr(guard_link, "is_settled", lambda _pid: False)
    GuardLink._end_orphans()
    assert orphan.poll() is not None


def test_what_a_dying_child_hands_over_after_the_look_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of children was read before the payload ended, and its environment afterwards."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    orphan = subprocess.Popen(["sleep", "60"], env={"FORESTAY_CLAIM": "claim-1"})
    looks = iter([[gone.pid]])

    def children(_pid: int) -> list[int]:
        return next(looks, None) or ([orphan.pid] if orphan.poll() is None else [])

    monkeypatch.setattr(guard_link, "children_of", children)
    GuardLink._end_orphans()
    assert orphan.poll() is not None
