"""The pilot's end of the socket to its guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

# Two seconds for the guard to come; it comes after 0.8, and before that the pilot is stopped for three.
PILOT = """
import os, signal, threading
from holdfast_pilot import guard_link
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
    _, told = pilot.communicate(timeout=60)
    assert pilot.returncode == 0, told.decode()
