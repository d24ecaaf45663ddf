"""Stand-ins for nodes and their launcher. As with Slurm, ranks are children of the nodes' daemons: they outlive a launcher that is killed."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

LAUNCHER = """#!{python}
import json, os, sys, time
place = "{folder}/" + str(os.getpid())
with open(place + ".new", "w") as target:
    json.dump([sys.argv[2:], dict(os.environ), int(sys.argv[1])], target)
os.rename(place + ".new", place + ".request")
while not os.path.exists(place + ".done"):
    time.sleep(0.02)
sys.exit(int(open(place + ".done").read()))
"""


class FakeNodes:
    """The daemons of two nodes, as a thread, and a launcher program that asks them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.launcher = folder / "launch"
        self.launcher.write_text(LAUNCHER.format(python=sys.executable, folder=folder))
        self.launcher.chmod(self.launcher.stat().st_mode | stat.S_IXUSR)
        self.ranks: list[subprocess.Popen[bytes]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for rank in self.ranks:
            rank.kill()
            rank.wait()

    def _serve(self) -> None:
        while not self._over.wait(0.02):
            for request in self._folder.glob("*.request"):
                argv, environment, count = json.loads(request.read_text())
                request.unlink()
                started = [self._start(argv, environment, number) for number in range(count)]
                self.ranks += started
                threading.Thread(target=_wait, args=(started, request.with_suffix(".done")), daemon=True).start()

    def _start(self, argv: list[str], environment: dict[str, str], number: int) -> subprocess.Popen[bytes]:
        named = {**environment, "SLURM_PROCID": str(number), "SLURMD_NODENAME": f"n{number + 1}"}
        with open(self._folder / f"{number}.out", "ab") as output:
            return subprocess.Popen(argv, env=named, stdout=output, stderr=output)


def _wait(started: list[subprocess.Popen[bytes]], done: Path) -> None:
    codes = [rank.wait() for rank in started]
    new = done.with_suffix(".code")
    new.write_text(str(max(abs(code) for code in codes)))
    new.rename(done)


def alive(pid: int) -> bool:
    """Whether a process lives and is no zombie."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] != "Z"
    return False


def wait_for_file(path: Path, seconds: float) -> str:
    """The content of a file, once there is one."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.02)
    return path.read_text()


def shared(folder: Path) -> list[str]:
    """What is left in the folders where ranks and pilots meet."""
    return [os.fspath(place) for place in folder.glob("pilot-*/ranks/*")]
