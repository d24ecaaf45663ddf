"""Caches of pilots: look-ups a second, and what each policy keeps of the same trace.

    just bench cache [--entries 10000,100000] [--seconds 2] [--processes 2]

Look-ups are those of a pilot: by name in memory (`find`); with a hard link into a job's folder (`give`), as for every input; and by several pilots of one host at once.
Policies are the very code that pilots run, over traces of one host: the paper's workflows W1 to W3 as a stream of many, and Zipf's law with and without scans.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.harness import RESULTS
from forestay_pilot.cache.cache import Cache, CacheSettings
from forestay_pilot.cache.cache_changes import CacheChanges
from forestay_pilot.cache.cache_policy import POLICIES, CacheBook

MB = 1000**2
GOAL = 5000
"""Look-ups a second with a link, in one pilot: "thousands of reads"."""

Access = tuple[str, int, bool]
"""A name, its size, and whether it is read; else it is an output that was just made."""


# Look-ups


def filled(folder: Path, entries: int) -> Cache:
    """A cache with so many files of a few bytes each."""
    cache = Cache(CacheSettings(str(folder / "cache"), 10**12), CacheChanges())
    for number in range(entries):
        content = b"%08d" % number
        path = folder / "made"
        path.write_bytes(content)
        cache.keep(f"lfn:/store/data/run{number % 97}/file-{number}.root", str(path), size=8, sha256=digest(content))
        path.unlink()
    return cache


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def rate_of(deed: Callable[[int], object], seconds: float) -> tuple[float, float]:
    """Deeds a second, and the time in µs that 99 of 100 take at most."""
    took: list[float] = []
    until = time.perf_counter() + seconds
    number = 0
    while (began := time.perf_counter()) < until:
        deed(number)
        took.append(time.perf_counter() - began)
        number += 1
    took.sort()
    return number / sum(took), 1e6 * took[int(0.99 * (len(took) - 1))]


def look_ups(entries: int, seconds: float, seed: int = 1) -> dict[str, float]:
    """One pilot's look-ups."""
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("BENCH_FOLDER")))
    try:
        began = time.perf_counter()
        cache = filled(folder, entries)
        filling = time.perf_counter() - began
        rng = random.Random(seed)
        names = [
            f"lfn:/store/data/run{number % 97}/file-{number}.root"
            for number in (rng.randrange(entries) for _ in range(4096))
        ]
        jobs = folder / "jobs"
        jobs.mkdir()
        target = str(jobs / "in")

        def give(number: int) -> None:
            claim = f"c-{number}"
            assert cache.give(names[number % 4096], target, claim=claim)
            os.unlink(target)
            cache.release(claim)

        finds_a_second, found_99 = rate_of(lambda number: cache.find(names[number % 4096]), seconds)
        gives_a_second, given_99 = rate_of(give, seconds)
        missed, _ = rate_of(lambda number: cache.give("lfn:/not/there", target, claim="c"), seconds)
        return {
            "entries": entries,
            "kept_a_second": entries / filling,
            "finds_a_second": finds_a_second,
            "find_p99_us": found_99,
            "gives_a_second": gives_a_second,
            "give_p99_us": given_99,
            "misses_a_second": missed,
        }
    finally:
        shutil.rmtree(folder)


def _worker(entries: int, seconds: float, seed: int) -> float:
    return look_ups(entries, seconds, seed)["gives_a_second"]


def together(entries: int, seconds: float, processes: int) -> float:
    """Look-ups with links of several pilots at once, summed."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return sum(pool.starmap(_worker, [(entries, seconds, seed) for seed in range(processes)]))


# Traces


def workflow(kind: str, many: int, rng: random.Random) -> Iterator[Access]:
    """A stream of the paper's workflows at one host: files are made, and read once or twice some jobs later.

    W1: each file is read by one job. W2: by two jobs. W3: two files are read by one job, once the later one is there.
    """
    due: list[tuple[float, int, str, int]] = []
    before, its_size = "", 0
    for number in range(many):
        size = int(700 * MB * rng.lognormvariate(0, 0.5))
        name = f"job:{kind}-{number}/out.root"
        yield name, size, False
        if kind == "W3":
            if number % 2:
                at = number + rng.expovariate(1 / 20)
                due += [(at, number, name, size), (at, number, before, its_size)]
            before, its_size = name, size
        else:
            for _ in range(2 if kind == "W2" else 1):
                due.append((number + rng.expovariate(1 / 20), number, name, size))
        due.sort()
        while due and due[0][0] <= number:
            _, _, read, bytes_read = due.pop(0)
            yield read, bytes_read, True
    for _, _, read, bytes_read in due:
        yield read, bytes_read, True


def zipf(exponent: float, many: int, rng: random.Random, scans: float = 0.0) -> Iterator[Access]:
    """Reads of 2,000 files by Zipf's law; of them the given share in scans of files that are read once."""
    files = 2000
    weights = [1 / (rank + 1) ** exponent for rank in range(files)]
    sizes = [int(700 * MB * rng.lognormvariate(-0.5, 1.2)) + 1 for _ in range(files)]
    chosen = rng.choices(range(files), weights, k=many)
    scanned = 0
    for place, number in enumerate(chosen):
        if scans and (place // 200) % round(1 / scans) == 0:
            scanned += 1
            yield f"lfn:/scan/{scanned}", sizes[number], True
        else:
            yield f"lfn:/zipf/{number}", sizes[number], True


def cost(size: int) -> float:
    """Seconds to bring a file again: a start and 100 MB/s."""
    return 2.0 + size / (100 * MB)


def replay(trace: list[Access], capacity: int, policy: str) -> dict[str, float]:
    """Hits of files and bytes, and the seconds saved, of all that reads asked for."""
    book = CacheBook(capacity, policy)
    reads = hits = read_bytes = hit_bytes = 0
    spent = saved = 0.0
    for name, size, read in trace:
        if not read:
            book.add(name, size, cost(size))
            continue
        reads, read_bytes, spent = reads + 1, read_bytes + size, spent + cost(size)
        if book.use(name):
            hits, hit_bytes, saved = hits + 1, hit_bytes + size, saved + cost(size)
        else:
            book.add(name, size, cost(size))
    return {"hits": hits / reads, "bytes": hit_bytes / read_bytes, "seconds": saved / spent}


def traces(many: int) -> dict[str, list[Access]]:
    rng = random.Random(3)
    return {
        "W1": list(workflow("W1", many, rng)),
        "W2": list(workflow("W2", many, rng)),
        "W3": list(workflow("W3", many, rng)),
        "Zipf 0.8": list(zipf(0.8, 4 * many, rng)),
        "Zipf 1.1": list(zipf(1.1, 4 * many, rng)),
        "Zipf 0.8 with scans": list(zipf(0.8, 4 * many, rng, scans=0.25)),
    }


def compare(many: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, trace in traces(many).items():
        for space in (8, 38):
            policies = {policy: replay(trace, space * 1000 * MB, policy) for policy in sorted(POLICIES)}
            rows.append({"trace": name, "space_gb": space, "policies": policies})
    return rows


def table(rows: list[dict[str, object]]) -> str:
    names = sorted(POLICIES)
    lines = ["| trace | space | " + " | ".join(names) + " |", "| --- | --- |" + " --- |" * len(names)]
    for row in rows:
        policies = row["policies"]
        assert isinstance(policies, dict)
        best = max(round(policy["seconds"], 3) for policy in policies.values())
        cells = []
        for policy in names:
            other_policy = policies[policy]
            text = f"{other_policy['hits']:.2f} / {other_policy['bytes']:.2f} / {other_policy['seconds']:.2f}"
            cells.append(f"**{text}**" if math.isclose(round(other_policy["seconds"], 3), best) else text)
        lines.append(f"| {row['trace']} | {row['space_gb']} GB | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def decisions(many: int = 200_000) -> dict[str, float]:
    """Additions with removals a second, of each policy, with 10⁵ files in the book."""
    rates = {}
    for policy in sorted(POLICIES):
        book = CacheBook(100_000, policy)
        rng = random.Random(5)
        for number in range(100_000):
            book.add(str(number), 1)
        began = time.perf_counter()
        for number in range(many):
            book.use(str(rng.randrange(100_000)))
            book.add(f"n{number}", 1)
        rates[policy] = many / (time.perf_counter() - began)
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", default="10000,100000")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--accesses", type=int, default=20_000)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    args = parser.parse_args()
    sizes = [500] if args.quick else [int(part) for part in args.entries.split(",")]
    seconds = 0.1 if args.quick else args.seconds
    singles = [look_ups(entries, seconds) for entries in sizes]
    for single in singles:
        print(json.dumps({name: round(value, 1) for name, value in single.items()}))
    several = together(sizes[0], seconds, args.processes)
    print(f"{args.processes} pilots at once: {several:,.0f} look-ups with links a second in all")
    rates = {} if args.quick else decisions()
    for policy, rate in rates.items():
        print(f"{policy}: {rate:,.0f} uses and additions with removals a second at 100,000 files")
    rows = compare(500 if args.quick else args.accesses)
    print(table(rows))
    slowest = min(single["gives_a_second"] for single in singles)
    result = {"look_ups": singles, "together": several, "decisions": rates, "policies": rows}
    if not args.quick:
        (RESULTS / "cache.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{slowest:,.0f} look-ups with links a second in one pilot (goal {GOAL:,})")
    if slowest < GOAL and not args.quick and not os.environ.get("BENCH_SMOKE"):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
