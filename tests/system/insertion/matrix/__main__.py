"""The insertion matrix: what users of plain sbatch, Snakemake and Nextflow meet when something fails, with Forestay in front of Slurm and without it.

`python -m tests.system.insertion.matrix [--only TEXT]… [--kinds process,cgroup] [--resume] [--to FILE]`, as root
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.system.insertion.matrix.engines import WAYS, Way
from tests.system.insertion.matrix.faults import FAULTS
from tests.system.insertion.matrix.room import KINDS, Room, opened, round_in
from tests.system.insertion.matrix.verdict import Met, harms, verdict

RESULT = Path(__file__).parents[4] / "docs" / "reference" / "insertion-matrix.json"
Key = tuple[str, str, str, str]


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201


def key(cell: dict[str, Any]) -> Key:
    return cell["engine"], cell["way"], cell["failure"], cell["slurm"]


def every() -> list[Key]:
    """The cells that can exist, in the order of the page."""
    return [
        (way.engine, way.name, failure, kind)
        for way in WAYS
        for failure in FAULTS
        if failure not in way.skips
        for kind in KINDS
        if kind not in way.skips
    ]


def load(place: Path) -> list[dict[str, Any]]:
    return list(json.loads(place.read_text())["cells"]) if place.exists() else []


def keep(place: Path, cells: Sequence[dict[str, Any]]) -> None:
    """Put cells in the place of what was known of them; two runs may do so side by side."""
    with place.with_suffix(".lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        known = {key(cell): cell for cell in [*load(place), *cells]}
        order = every()
        skipped = [
            {"engine": way.engine, "way": way.name, "what": what, "why": why}
            for way in WAYS
            for what, why in way.skips.items()
        ]
        parts = {
            "slurms": KINDS,
            "failures": list(FAULTS),
            "ways": [{"engine": way.engine, "way": way.name} for way in WAYS],
            "skipped": skipped,
        }
        head = [f'"{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in parts.items()]
        lines = [json.dumps(known[name], ensure_ascii=False) for name in order if name in known]
        place.write_text("{" + ",\n".join(head) + ',\n"cells": [\n ' + ",\n ".join(lines) + "\n]}\n")
    place.with_suffix(".lock").unlink(missing_ok=True)


async def play(room: Room, ways: Sequence[Way], failure: str) -> list[dict[str, Any]]:
    """Some ways of one engine meet a failure together, each with Forestay and without."""
    fault = FAULTS[failure]
    name = f"{ways[0].engine}-{failure}".replace(" ", "-").replace(",", "").lower()
    async with round_in(room, name) as played:
        played.asking = any(way.asking for way in ways)
        if fault.watched:
            await played.watch()
        running: dict[tuple[str, bool], asyncio.Task[Met]] = {}
        for way in ways:
            for ours in (False, True):
                arm = played.arm(way.name, ours=ours)
                arm.program(fault.program(arm.folder, way.greed))
                running[way.name, ours] = asyncio.create_task(way.run(arm, fault))
        if fault.strike is not None:
            await played.begun()
            await fault.strike(played)
        met: dict[tuple[str, bool], Met] = {}
        for who, task in running.items():
            met[who] = await task
        cells = []
        for way in ways:
            bare, ours_ = met[way.name, False], met[way.name, True]
            cells.append({
                "engine": way.engine, "way": way.name, "failure": failure, "slurm": room.kind, "verdict": verdict(bare, ours_),
                "harms": harms(bare, ours_), "bare": bare.plain(), "ours": ours_.plain(),
                "incidents": await played.incidents(played.arms[way.name, True]),
            })  # fmt: skip
        return cells


async def run_kind(kind: str, wanted: Sequence[Key], place: Path, folder: Path) -> int:
    """All wanted cells on one Slurm; a round that could not be played is told, and the next is tried."""
    broken = 0
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # so that what was started is stopped
    async with opened(kind, folder) as room:
        for engine in dict.fromkeys(way.engine for way in WAYS):
            for failure in FAULTS:
                ways = [way for way in WAYS if (way.engine, way.name, failure, kind) in wanted and way.engine == engine]
                if not ways:
                    continue
                began = time.monotonic()
                try:
                    cells = await play(room, ways, failure)
                except Exception:
                    broken += len(ways)
                    say(f"BROKEN {engine}, {failure}, {kind}\n{traceback.format_exc()}")
                    continue
                keep(place, cells)
                for cell in cells:
                    more = f": {'; '.join(cell['harms'])}" if cell["harms"] else ""
                    say(f"{kind}, {engine}, {cell['way']}, {failure}: {cell['verdict']}{more}")
                say(f"{kind}, {engine}, {failure}: {time.monotonic() - began:.0f} s")
    return broken


def side_by_side(args: argparse.Namespace) -> int:
    """Each kind of Slurm in a process and a mount namespace of its own, where it is at Slurm's default place."""
    words = [sys.executable, "-m", "tests.system.insertion.matrix", "--to", str(args.to)]
    words += [f"--only={text}" for text in args.only]
    words += ["--resume"] if args.resume else []
    inside = 'mkdir -p /etc/slurm && mount -t tmpfs none /etc/slurm && exec "$@"'
    started = [
        subprocess.Popen(["unshare", "-m", "sh", "-c", inside, "sh", *words, "--kinds", kind, "--inside"])
        for kind in args.kinds.split(",")
    ]
    return max(process.wait() for process in started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="cells whose `engine/way/failure/kind` contains this text; several: any",
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of Slurm; each runs beside the others")
    parser.add_argument("--resume", action="store_true", help="leave out the cells that are known already")
    parser.add_argument("--to", type=Path, default=RESULT)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        if os.getuid() != 0:
            say("only root may put Slurm's configuration at its default place")
            return 2
        return side_by_side(args)
    known = {key(cell) for cell in load(args.to)} if args.resume else set()
    texts = args.only or [""]
    wanted = [
        name
        for name in every()
        if name[3] == args.kinds and any(text in "/".join(name) for text in texts) and name not in known
    ]
    with tempfile.TemporaryDirectory(prefix=f"fm-{args.kinds}-", ignore_cleanup_errors=True) as folder:
        # Snakemake takes Slurm's variables out of the environment of jobs.
        Path("/etc/slurm/slurm.conf").symlink_to(f"{folder}/clients.conf")
        broken = asyncio.run(run_kind(args.kinds, wanted, args.to, Path(folder))) if wanted else 0
    say(f"{args.kinds}: {len(wanted)} cells wanted, {broken} could not be played")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
