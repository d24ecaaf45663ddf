"""Whether tests notice faults in the code that keeps the promises: `python -m tests.system.mutants`, resumable; `--page` only writes the page.

A seeded sample of faults is put, one at a time, into a clone of the last commit, and the tests that are to notice it run there: the near ones, then the far ones.
What survives is a fault that no test would notice, or no fault at all: who finds the latter names it with the reason in `equivalents.json`.
"""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from tests.system.mutants.operators import Mutant, mutants, mutated
from tests.system.mutants.page import KEPT, PAGE, Outcome, page, read, write
from tests.system.mutants.targets import TARGETS, UNIT, Target

ROOT = Path(__file__).parents[3]
SEED, MOST = 20261118, 400
MARKS = "not live and not slow and not measured and not other_store and not pages"
CPU, WALL = 120, 900
"""Seconds of one call of pytest; a fault that makes a loop endless is noticed by its processor time."""


def sample(root: Path, seed: int, most: int) -> list[tuple[Target, Mutant]]:
    """As many of each promise as there are turns, in turns, so that a part of the sample is a sample too."""
    chance = random.Random(seed)
    by_promise: dict[str, list[tuple[Target, Mutant]]] = defaultdict(list)
    for target in TARGETS:
        source = (root / target.file).read_text()
        by_promise[target.promise] += [(target, each) for each in mutants(target.file, source, target.functions)]
    for each in by_promise.values():
        chance.shuffle(each)
    longest = max(map(len, by_promise.values()))
    turns = [each[turn] for turn in range(longest) for each in by_promise.values() if turn < len(each)]
    return turns[:most]


def clone(commit: str, place: Path) -> Path:
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(place)], check=True)
    subprocess.run(["git", "-C", str(place), "checkout", "--quiet", commit], check=True)
    return place


def noticed(place: Path, tests: Sequence[str]) -> tuple[str, float]:
    """The verdict of these tests on what is in the clone: passed, or the test that failed; and their processor time."""

    def limits() -> None:
        os.nice(19)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU + 5))

    folders = os.pathsep.join([str(place / "src"), str(place / "plugins" / "forestay-bpel" / "src"), str(place)])
    environment = os.environ | {"PYTHONPATH": folders, "CI": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", MARKS]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [*command, *(UNIT + name for name in dict.fromkeys(tests))],
            cwd=place, env=environment, stdout=output, stderr=output, start_new_session=True, preexec_fn=limits,
        )  # fmt: skip
        try:
            code = process.wait(WALL)
        except subprocess.TimeoutExpired:
            code = -1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        lines = output.read().splitlines()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if code in (0, 5):
        return "passed", spent
    failed = [line.split()[1].partition("[")[0] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return (
        failed[0] if failed else f"no end within {CPU} s of processor time" if code < 0 else f"exit code {code}"
    ), spent


def tried(place: Path, target: Target, mutant: Mutant) -> Outcome:
    file = place / target.file
    source = file.read_text()
    began = time.monotonic()
    try:
        file.write_text(mutated(source, mutant.number))
        verdict, spent = noticed(place, target.near)
        if verdict == "passed" and target.far:
            verdict, more = noticed(place, target.far)
            spent += more
    finally:
        file.write_text(source)
    by = "" if verdict == "passed" else verdict.removeprefix(UNIT)
    return Outcome(
        target.promise,
        mutant.file,
        mutant.line,
        mutant.operator,
        mutant.before,
        mutant.after,
        by,
        round(time.monotonic() - began, 1),
    )


def sound(place: Path, outcomes: dict[str, Outcome]) -> list[str]:
    """Run what noticed something once more, without a fault; what fails then too has noticed nothing, and its outcomes are dropped."""
    tests = sorted({outcome.by for outcome in outcomes.values() if ".py" in outcome.by})
    dropped = []
    while tests and (verdict := noticed(place, tests)[0]) != "passed":
        bad = verdict.removeprefix(UNIT)
        if bad not in tests:
            sys.exit(f"without a fault: {verdict}")
        tests.remove(bad)
        dropped += [name for name, outcome in outcomes.items() if outcome.by == bad]
    for name in dropped:
        del outcomes[name]
    return dropped


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--minutes", type=float, default=120, help="begin no mutant after so long")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="try the survivors once more")
    asked = parser.parse_args()
    outcomes = {} if not KEPT.exists() else read()
    if not asked.page:
        run(asked, outcomes)
    PAGE.write_text(page(list(outcomes.values())))
    return 0


def run(asked: argparse.Namespace, outcomes: dict[str, Outcome]) -> None:
    commit, source = (
        subprocess.run(
            ["git", "log", "-1", "--format=%H", "--", part], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
        for part in (".", "src")
    )
    folder = Path(tempfile.mkdtemp(prefix="forestay-mutants-"))
    places: Queue[Path] = Queue()
    until = time.monotonic() + 60 * asked.minutes
    try:
        for number in range(asked.processes):
            places.put(clone(commit, folder / str(number)))
        chosen = sample(folder / "0", SEED, MOST)
        names = {mutant.name for _, mutant in chosen}
        for gone in [name for name in outcomes if name not in names]:
            del outcomes[gone]  # of another source
        left = [
            (target, mutant) for target, mutant in chosen
            if mutant.name not in outcomes or (asked.again and not outcomes[mutant.name].by)
        ]  # fmt: skip
        print(f"{len(chosen)} in the sample, {len(left)} to be tried", file=sys.stderr, flush=True)

        def one_of(pair: tuple[Target, Mutant]) -> None:
            if time.monotonic() > until:
                return
            place = places.get()
            try:
                outcome = tried(place, *pair)
            finally:
                places.put(place)
            outcomes[pair[1].name] = outcome
            write(outcomes, source[:9], len(chosen))
            print(f"{outcome.seconds:5.0f} s  {pair[1].name}: {outcome.by or 'SURVIVED'}", flush=True)

        with ThreadPoolExecutor(asked.processes) as pool:
            list(pool.map(one_of, left))
        for name in sound(folder / "0", outcomes):
            print(f"not counted, its test fails without a fault too: {name}", flush=True)
        write(outcomes, source[:9], len(chosen))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
