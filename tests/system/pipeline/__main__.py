"""`python -m tests.system.pipeline record|compare FILE [--failures N]`: writes, or compares with, the digests of everything that a campaign of failures and exceptions wrote."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import lzma
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
from tests.system.pipeline.campaign import run_campaign

SEED = 20


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def digests(failures: int, lines: Path | None) -> dict[str, dict[str, str]]:
    """By way of running, with an engine for runs and without, and by subject."""
    found = {}
    for name, engine in (("jobs only", False), ("with runs", True)):
        with TemporaryDirectory(prefix="forestay-pipeline-") as folder:
            began = time.monotonic()
            recorder, world = asyncio.run(run_campaign(Path(folder), failures=failures, seed=SEED, engine=engine))
        writes = sum(map(len, recorder.lines.values()))
        say(
            f"{name}: {failures:,} failures, {writes:,} writes about {len(recorder.lines):,} subjects, "
            f"{world.interrupted} passes interrupted, {time.monotonic() - began:.0f} s",
        )
        found[name] = recorder.digests()
        if lines is not None:
            lines.mkdir(parents=True, exist_ok=True)
            with lzma.open(lines / f"{name.replace(' ', '-')}.json.xz", "wt") as out:
                json.dump(recorder.lines, out, indent=1, sort_keys=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--failures", type=int, default=10_000)
    parser.add_argument("--lines", type=Path, help="a folder for everything that was written, to look at differences")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found = digests(given.failures, given.lines)
    if given.do == "record":
        with lzma.open(given.file, "wt") as out:
            json.dump(found, out, sort_keys=True)
        return 0
    with lzma.open(given.file, "rt") as kept:
        known = json.load(kept)
    different = 0
    for name, subjects in found.items():
        names = subjects.keys() | known[name].keys()
        differ = sorted(subject for subject in names if subjects.get(subject) != known[name].get(subject))
        different += len(differ)
        say(f"{name}: {len(differ)} of {len(names):,} subjects differ {differ[:20]}")
    say(f"{different} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
