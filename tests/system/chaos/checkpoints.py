"""A counter that needs far longer than any pilot lives: pilots end after seconds, some are killed, and checkpoints carry it on.

A real server on SQLite, real pilots one after the other, and one job that counts. Each count is written down outside as well, so
that what was counted twice is known.

    python -m tests.system.chaos.checkpoints --work 600 --pilots 20
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.unit.apps.server.asks import read, submit_one
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain

UNIT = 0.1
"""Seconds that a count takes."""
MARGIN = 2
"""Seconds at the end of each pilot's life."""
KILLED = 0.2
"""The share of pilots that are killed before their time is over."""

COUNTER = """\
import os, signal, sys, time

unit, total, counted = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
stopped = []
signal.signal(signal.SIGUSR1, lambda *_: stopped.append(True))


def save(count):
    with open("count.new", "w") as file:
        file.write(str(count))
    os.rename("count.new", "count.txt")


count = int(open("count.txt").read()) if os.path.exists("count.txt") else 0
while count < total:
    time.sleep(unit)
    count += 1
    with open(counted, "a") as file:
        file.write(f"{count}\\n")
    if count % 5 == 0:
        save(count)
    if stopped:
        save(count)
        sys.exit(3)
save(count)
"""


@dataclass(slots=True)
class Tally:
    """What a campaign showed."""

    state: str
    work: float
    """Seconds."""
    repeated: float
    """The share of the counts that was counted again."""
    pilots: int
    kills: int
    attempts: int
    failures: int
    releases: int
    continuations: int
    seconds: float
    left: int
    """Folders of checkpoints that nobody removed."""


async def campaign(folder: Path, *, work: float, pilots: float, seed: int, every: int = 1) -> Tally:
    """Run one counter to its end."""
    chance, began = random.Random(seed), time.monotonic()
    counted, script = folder / "counted", folder / "counter.py"
    script.write_text(COUNTER)
    total = round(work / UNIT)
    domain = Domain(f"sqlite:///{folder}/jobs.db", folder, {"lease": 5})
    kills = started = 0
    continuations = 0
    async with processes(domain, folder) as running:
        server = await running.server(lease=5)
        running.reconciler(lease=5)
        ada = running.client(server, "submitter", "viewer", tenant="physics")
        checkpoint = {"files": ["count.txt"], "signal": "USR1", "every": every, "grace": 1}
        command = [sys.executable, str(script), str(UNIT), str(total), str(counted)]
        job = await submit_one(ada, command=command, outputs=["count.txt"], checkpoint=checkpoint)
        pilot: Started | None = None
        kill_at = 0.0
        until = began + 10 * work + 300
        while (shown := await read(ada, job))["state"] in ("available", "running") and time.monotonic() < until:
            continuations = max(continuations, (shown.get("checkpoint") or {}).get("continuations", 0))
            if pilot is None or pilot.process.poll() is not None:
                pilot = _pilot(running, server, pilots)
                started += 1
                kill_at = time.monotonic() + chance.uniform(0.3, 0.9) * pilots if chance.random() < KILLED else 0.0
            elif kill_at and time.monotonic() > kill_at:
                await asyncio.to_thread(pilot.kill_alone)
                kills += 1
            await asyncio.sleep(0.1)
        counts = counted.read_text().splitlines()
        left = await _left(folder / "outputs")
    return Tally(
        state=shown["state"],
        work=work,
        repeated=(len(counts) - len(set(counts))) / total,
        pilots=started,
        kills=kills,
        attempts=shown["attempt"],
        failures=shown["failures"],
        releases=shown["releases"],
        continuations=continuations,
        seconds=time.monotonic() - began,
        left=left,
    )


def _pilot(running: Processes, server: Started, seconds: float) -> Started:
    return running.pilot(
        "physics", server, time_left=str(seconds), time_margin=str(MARGIN), claim_wait="1"
    )  # fmt: skip


async def _left(outputs: Path) -> int:
    """How many folders of checkpoints are left once the pilot had time to remove them."""
    folders: list[Path] = []
    for _ in range(100):
        folders = await asyncio.to_thread(lambda: list(outputs.glob("*/*/*.c*")))
        if not folders:
            break
        await asyncio.sleep(0.1)
    return len(folders)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=float, default=600, help="seconds that the job counts")
    parser.add_argument("--pilots", type=float, default=20, help="seconds that each pilot has")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=float, default=0.05, help="the share of the work that may be repeated")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        tally = asyncio.run(campaign(Path(folder), work=arguments.work, pilots=arguments.pilots, seed=arguments.seed))
    sys.stdout.write(json.dumps(asdict(tally), indent=1) + "\n")
    good = tally.state == "completed" and tally.repeated <= arguments.most and not tally.left
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
