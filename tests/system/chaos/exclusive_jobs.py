"""Real jobs on stand-in devices: two pilots share the devices of this host and are killed at random; every job checks that it is alone.

Each job takes a lock of its own on the device that it was given, and says so if somebody has it. Half of the jobs leave something running in a session of its own.

    python -m tests.system.chaos.exclusive_jobs --jobs 1000
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from random import Random

from tests.unit.pilot.conftest import SOURCE
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer

DEVICES = 3
PILOTS = 2
AT_ONCE = 40
KILL_EVERY = 40
"""Ended jobs between two kills."""
PAYLOAD = """\
flock -n "$0/$FORESTAY_DEVICES" sh -c '
  if [ $(($FORESTAY_INDEX % 2)) = 0 ]; then setsid sleep 0.3 & fi
  sleep 0.05' || echo "$FORESTAY_INDEX" >> "$0/shared"
echo "$FORESTAY_INDEX $FORESTAY_DEVICES" >> "$0/began"
"""


def pilot(server: FakeServer, folder: Path, devices: list[str]) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "forestay_pilot", "--server", server.url, "--claim-wait", "1", "--slots", "2"]
    words += ["--cpus", "4", "--outputs", str(folder / "out"), "--work", str(folder / "work"), "--grace", "1"]
    words += [word for device in devices for word in ("--device", device)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "FORESTAY_ENROL_TOKEN": ENROL_TOKEN}
    return subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)


def campaign(jobs: int, seed: int, seconds: float) -> Counter[str]:
    """Run until so many jobs have ended well, or the time is over."""
    rng, tally = Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder, server = Path(name), FakeServer()
        locks = folder / "locks"
        locks.mkdir()
        devices = [f"stand-in-{uuid.uuid4().hex[:8]}" for _ in range(DEVICES)]
        pilots = [pilot(server, folder, devices) for _ in range(PILOTS)]
        index, next_kill, until = 0, KILL_EVERY, time.monotonic() + seconds
        try:
            while tally["ended"] < jobs and time.monotonic() < until:
                with server.work:
                    waiting = len(server.jobs)
                for _ in range(AT_ONCE - waiting):
                    server.submit("sh", "-c", PAYLOAD, str(locks), index=index, resources={"cpus": 1, "gpus": 1})
                    index += 1
                outcomes = Counter(
                    str(end["reason"]) for end in list(server.seen.completions) if end["outcome"] != "ok"
                )
                tally = outcomes
                tally["ended"] = sum(1 for end in list(server.seen.completions) if end["outcome"] == "ok")
                if tally["ended"] >= next_kill:
                    next_kill += KILL_EVERY
                    place = rng.randrange(PILOTS)
                    pilots[place].kill()
                    pilots[place].wait()
                    pilots[place] = pilot(server, folder, devices)
                time.sleep(0.1)
        finally:
            for process in pilots:
                process.kill()
                process.wait()
            server.stop()
        tally["kills"] = next_kill // KILL_EVERY - 1
        tally["shared"] = len((locks / "shared").read_text().split()) if (locks / "shared").exists() else 0
        tally["began"] = len((locks / "began").read_text().splitlines()) if (locks / "began").exists() else 0
    return tally


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600)
    arguments = parser.parse_args(words)
    tally = campaign(arguments.jobs, arguments.seed, arguments.seconds)
    print(dict(tally))  # noqa: T201
    return 1 if tally["shared"] or tally["ended"] < arguments.jobs else 0


if __name__ == "__main__":
    sys.exit(main())
