"""What the benchmarks share: interleaved arms, CPU of processes, bounds, and results as JSON."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TICKS = os.sysconf("SC_CLK_TCK")
EARLIER = "earlier"
"""Where a result has the other executions of its commit."""
OWN = [f":(exclude,top){path}" for path in ("bench/results", "docs/reference/proof.md", "docs/reference/proof-*.svg")]
TASKS = {
    "tests.system.chaos": "just chaos",
    "tests.system.faults": "just faults",
    "tests.system.hostile": "just hostile",
    "tests.system.matrix.pattern_cost": "just pattern-costs",
    "tests.system.metadata": "just metadata-value",
}
"""Modules with a task of their own."""


@dataclass(slots=True)
class Run:
    """One run of one arm."""

    arm: str
    operations: int
    seconds: float
    cpu: dict[str, float]
    """CPU-seconds by process."""
    pressure: float
    load: float
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.operations / self.seconds

    @property
    def cpu_each(self) -> float:
        return sum(self.cpu.values()) / self.operations


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(fields[place]) for place in (11, 12, 13, 14)) / TICKS


def process_named(words: str) -> list[int]:
    """Processes whose command line has these words in it."""
    names = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if words in line:
                names.append(int(entry.name))
    return names


def opensearch_pid(port: int) -> int:
    """The process that listens on a port of this machine."""
    wanted = f"{port:04X}"
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            parts = line.split()
            if parts[1].endswith(f":{wanted}") and parts[3] == "0A":
                inodes.add(f"socket:[{parts[9]}]")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if any(os.readlink(path) in inodes for path in (entry / "fd").iterdir()):
                return int(entry.name)
        except OSError:
            continue
    raise SystemExit(f"nothing listens on port {port}; start the servers first: scripts/servers start opensearch")


def pressure() -> float:
    """Share of the last ten seconds in which something waited for a CPU."""
    try:
        return float(Path("/proc/pressure/cpu").read_text().split("avg10=")[1].split()[0])
    except (OSError, IndexError):
        return float("nan")


async def measure(
    arm: str, work: Callable[[], Awaitable[int]], processes: Mapping[str, int], facts: Mapping[str, float] | None = None
) -> Run:
    """Run an arm once; its work says how many operations it did."""
    before = {name: cpu_seconds(pid) for name, pid in processes.items()}
    started = time.perf_counter()
    operations = await work()
    seconds = time.perf_counter() - started
    cpu = {name: cpu_seconds(pid) - before[name] for name, pid in processes.items()}
    run = Run(arm, operations, seconds, cpu, pressure(), os.getloadavg()[0], dict(facts or {}))
    spent = ", ".join(f"{name} {used / max(1, operations) * 1e6:.0f} µs" for name, used in cpu.items())
    print(f"  {arm:<28} {run.rate:>9.0f}/s   CPU each: {spent}   (load {run.load:.1f})", file=sys.stderr)
    return run


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of paired ratios with its 95 % bound."""

    median: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.median:.2f} (95 %: {self.low:.2f} to {self.high:.2f}, {self.pairs} pairs)"


def paired(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """Bootstrap over pairs; the seed is fixed, so that the same pairs give the same bound."""
    ratios = [first / other for first, other in zip(above, below, strict=True)]
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(2000))
    return Ratio(statistics.median(ratios), medians[50], medians[1949], len(ratios))


def rates(runs: Sequence[Run], arm: str) -> list[float]:
    return [run.rate for run in runs if run.arm == arm]


def keep(
    name: str,
    runs: Sequence[Run],
    figures: Mapping[str, object],
    known: Mapping[str, object] | None = None,
    *,
    smoke: bool = False,
) -> Path:
    """Keep one execution: its raw runs and figures, beside earlier ones of the same commit; those of other commits are replaced.

    A `Ratio` among the figures is not written: the report computes it from the runs. What a smoke run measured is no result, and is kept apart.
    `known` is what is known of a run that was not made just now, or not by this commit.
    """
    place = RESULTS / ".smoke" if smoke or os.environ.get("BENCH_SMOKE") else RESULTS
    place.mkdir(exist_ok=True)
    path = place / f"{name}.json"
    body: dict[str, Any] = {
        "benchmark": name,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": command(),
        "commit": commit(),
        "load": round(os.getloadavg()[0], 1),
        "machine": {"cores": os.cpu_count(), "kernel": os.uname().release},
        "figures": {key: value for key, value in figures.items() if not isinstance(value, Ratio)},
        "runs": [asdict(run) for run in runs],
    } | dict(known or {})
    before = json.loads(path.read_text()) if path.exists() else {}
    earlier = [
        execution
        for execution in ({key: value for key, value in before.items() if key != EARLIER}, *before.get(EARLIER, []))
        if execution.get("digest") and execution["commit"] == body["commit"]
    ]
    body["digest"] = digest(body)
    path.write_text(json.dumps(body | ({EARLIER: earlier} if earlier else {}), indent=1) + "\n")
    return path


def digest(execution: Mapping[str, object]) -> str:
    """Of all that one execution left: what was changed by hand since is noticed."""
    plain = {key: value for key, value in execution.items() if key not in ("digest", EARLIER)}
    # As it is read again: numbers that are keys have become texts, which sort in another order.
    read = json.loads(json.dumps(plain))
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()


def command() -> str:
    """What was typed, in the words of the docs."""
    if given := os.environ.get("FORESTAY_BENCH_COMMAND"):
        return given
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    module = spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).name
    words = TASKS.get(module) or (
        f"just bench {module.removeprefix('bench.')}" if module.startswith("bench.") else f"python -m {module}"
    )
    return shlex.join([*words.split(), *sys.argv[1:]])


def commit() -> str:
    """What was measured: the last commit, with a plus where files differ from it; nothing where there is no repository.

    Results of other benchmarks, and the page that shows them, are no difference: several are measured one after the other on one commit.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    name = git("rev-parse", "--short=9", "HEAD").strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", *OWN)
    return f"{name}+" if name and changed else name


def leave(*, reached: bool) -> None:
    """End the benchmark: a goal that was not reached is an error, except in a smoke run, whose sizes prove nothing."""
    sys.exit(0 if reached or os.environ.get("BENCH_SMOKE") else 1)
