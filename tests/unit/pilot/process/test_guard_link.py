"""The pilot's end of the socket to its guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from forestay_pilot.process.process_tree import OwnSessions

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


def test_own_programs_are_told_from_what_payloads_left() -> None:
    """By their sessions: those that this process made itself, and its own."""
    sessions = OwnSessions()
    check = sessions.start(["sleep", "60"])
    transfer = subprocess.Popen(["sleep", "60"])
    left = subprocess.Popen(["sleep", "60"], start_new_session=True, env={})
    try:
        orphans = sessions.orphans()
        assert left.pid in orphans
        assert not {check.pid, transfer.pid} & set(orphans)
    finally:
        for process in (check, transfer, left):
            process.kill()
            process.wait()
