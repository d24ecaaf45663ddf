"""The twelve benchmarks: each with what its arms do per call, its goal, what was reached, and what was not compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.harness import Ratio, paired
from bench.report import beside
from bench.report.results import COMMANDS, Fields, compare, counting, facts, ratio, refusal, when, whole

Read = Callable[[Sequence[Fields]], tuple[str, bool]]
"""The figure in words, and whether the worse end of the interval of all these executions reaches the goal."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One of the twelve."""

    number: int
    name: str
    kept: str
    """The file of its results."""
    goal: str
    arms: str
    """In one sentence, what each arm does per call: requests, bundling, durability, retries, processes."""
    read: Read
    missing: str = ""

    @property
    def command(self) -> str:
        return COMMANDS[self.kept]


def _durable(kept: Sequence[Fields]) -> tuple[str, bool]:
    value = compare(kept, "forestay", "bare")
    return f"{ratio(value)} × bare Temporal activities", value.low >= 30


def _claims(kept: Sequence[Fields]) -> tuple[str, bool]:
    bulk, single = compare(kept, "forestay", "bare bulk"), compare(kept, "forestay", "bare single")
    return (
        f"{ratio(bulk)} of bare bulk writes; {ratio(single)} × bare single ones",
        bulk.low >= 0.8 and single.low >= 12,
    )


def _contention(kept: Sequence[Fields]) -> tuple[str, bool]:
    ours, naive = (
        [wasted for fields in kept for wasted in facts(fields, arm, "wasted")] for arm in ("forestay", "naive")
    )
    twice = sum(many for fields in kept for many in facts(fields, "forestay", "twice"))
    return (
        f"{max(ours):.4f} wasted writes per claim in the worst of {len(ours)} rounds, naive {max(naive):.0f}; {twice:.0f} claimed twice",
        max(ours) <= 0.02 and not twice,
    )


def _latency(kept: Sequence[Fields]) -> tuple[str, bool]:
    taken = [fields["figures"]["seconds"] for fields in kept]
    pairs = whole([paired(each["claim"], each["bare, beside claim"]) for each in taken])
    return (
        f"{pairs.median:.3f} ({pairs.low:.3f} to {pairs.high:.3f}, {pairs.pairs} pairs) of a bare Temporal activity, submission to claim{beside.latency()}",
        pairs.high <= 0.15,
    )


def _makespan(kept: Sequence[Fields]) -> tuple[str, bool]:
    over = [
        row["makespan"] / row["bound"]
        for fields in kept
        for row in fields["figures"]["rows"]
        if row["arm"] == "look-ahead"
    ]
    return (
        f"{median(over):.3f} × the clairvoyant bound with real pilots, {max(over):.3f} at worst",
        max(over) <= 1.03,
    )


def _staging(kept: Sequence[Fields]) -> tuple[str, bool]:
    disk, wire = compare(kept, "pilot, a file", "dd"), compare(kept, "pilot, HTTP", "raw loopback")
    sent = max(fields["figures"]["amplification"] for fields in kept)
    hit = whole([_hit(fields["figures"]) for fields in kept])
    return (
        f"{ratio(disk)} of `dd`, {ratio(wire)} of a bare socket, {sent:.2f} × the least bytes, a hit {hit.median:.1f} × a hard link",
        disk.low >= 0.92 and wire.low >= 0.9 and sent <= 1 and hit.high <= 10,
    )


def _hit(figures: Fields) -> Ratio:
    if "hit, seconds" in figures:
        return paired(figures["hit, seconds"], figures["hard link, seconds"])
    each = figures["hit, microseconds"] / figures["hard link, microseconds"]  # medians are all that was kept
    return Ratio(each, each, each, 1)


def _rules(kept: Sequence[Fields]) -> tuple[str, bool]:
    some, many = (
        [fields["figures"][size]["decision"]["indexed"]["cpu"] for fields in kept] for size in ("10000", "100000")
    )
    without = [fields["figures"]["10000"]["decision"]["evaluated"]["cpu"] / 1e3 for fields in kept]
    return (
        f"{max(some):.0f} µs per decision with 10⁴ rules, {max(many):.0f} µs with 10⁵ (without the index {max(without):.0f} ms with 10⁴){beside.conditions()}",
        max(many) <= 5,
    )


def _breadth(kept: Sequence[Fields]) -> tuple[str, bool]:
    flows = [fields["figures"]["large"] for fields in kept]
    most = max(max(large["peak_bytes"].values()) for large in flows) / (1 << 20)
    took = max(large["accepted_in"] for large in flows)
    events = max(large["events"] / large["jobs"] for large in flows)
    return (
        f"10⁶ jobs accepted in {took:.0f} s, {most:.0f} MiB at most in a process, {events:.4f} events per job",
        took <= 60 and most <= 1024,
    )


def _control(kept: Sequence[Fields]) -> tuple[str, bool]:
    few, many = ([fields["runs"][place] for fields in kept] for place in (0, 1))
    cost = max(run["facts"]["beat cost, cores"] for run in many)
    rate = min(run["operations"] / run["seconds"] for run in many)
    slower = max(
        run["facts"]["claim p99"] / before["facts"]["claim p99"] for run, before in zip(many, few, strict=True)
    )
    return (
        f"10⁵ pilots: heartbeats cost {cost:.2f} core, {rate:.0f} concurrent claims per second, p99 {slower:.2f} × that of 10³",
        cost <= 0.25 and rate >= 2000 and slower <= 2,
    )


TWELVE = (
    Benchmark(
        1, "durable dispatch", "durable", "≥ 30 ×",
        "Forestay submits all jobs of a flow at once, and claims and completes them in bundles of up to 32, each on PostgreSQL's disk before it is answered; bare Temporal runs one activity for each call, 300 at a time in one workflow, each on the disk of its SQLite. One orchestrator or worker process, no failures and no retries in either.",
        _durable,
    ),
    Benchmark(
        2, "against executors", "executor", "one call a job ≥ 1 × each, bundled ≥ 3 × each",
        "*One call a job*: each call has a job, a claim and two attempts, stored on disk; the executor sends what waits in one request, and the pilot's claims and completions travel together; *one request a call too*: it sends each call for itself; *bundled*: up to 32 calls share a job, stored on disk, one attempt. Parsl, Dask and Celery send each call for itself with what batching they have by default, keep it in memory, and try once; DBOS stores each call in PostgreSQL. Two workers each.",
        beside.executors,
        beside.calls_missing(),
    ),
    Benchmark(
        3, "claim efficiency", "claim_efficiency", "≥ 0.80 of bulk, ≥ 12 × single",
        "Forestay searches, matches and claims for 32 claimers, in bulk writes of up to 500; the bare bulk loop knows every document beforehand and writes 500 in a request; the bare single loops write one document in a request, 32 at once. OpenSearch syncs its log before each answer to any of them.",
        _claims,
    ),
    Benchmark(
        4, "contention", "contention", "≤ 0.02, none twice",
        "Four Forestay servers with 16 claimers each share the hash slots of 1,000 hot jobs and claim in bundles; each of 64 naive claimers searches the queue's top and tries to write one claim at a time. Both on one OpenSearch, each write on disk.",
        _contention,
        "10⁷ commits; an execution whose runs were not kept had 0.022",
    ),
    Benchmark(
        5, "latency", "start_latency", "≤ 0.15",
        "Forestay takes one job by one HTTP request, creates it with its claim in one write to PostgreSQL's disk, and a waiting pilot has it; bare Temporal takes one workflow with one activity, until the activity begins. Parsl: one call in memory until its result is back. Idle before each call; one attempt.",
        _latency,
    ),
    Benchmark(
        6, "lost pilots", "lost_pilots_60", "a kill ≤ 1 s, silence ≤ 1.25 leases",
        "Each system has one task on one of two workers, loses that worker, and runs the task again on the other: Forestay after a closed channel or a missed lease, the claim and both attempts on disk; Dask after a closed connection or `worker-ttl`, Parsl after `heartbeat_threshold` with one retry, both in memory.",
        beside.lost_pilots,
        "Temporal's heartbeat",
    ),
    Benchmark(
        7, "commits under chaos", "chaos_release", "0, 0, 0 in 10⁶ jobs",
        "One arm: servers, reconcilers, pilots and an OpenSearch of three nodes are killed, stopped and cut off while jobs run one at a time in each slot, with retries; an auditor compares what ran with what is stored.",
        beside.commits,
        "10⁶ jobs and 10⁴ kills; Celery and Dask under the same",
    ),
    Benchmark(
        8, "makespan with caches", "pilots_real", "≤ 1.03 × the bound",
        "Real pilots claim one job at a time from a real server, stage real files over HTTP and run a process; the bound is computed for the same draws by a scheduler that knows all durations and failures beforehand and spends no time on claims.",
        _makespan,
        "the simulation meets the goal; real jobs of 4 s cost 0.3 s more each",
    ),
    Benchmark(
        9, "staging", "staging", "≥ 0.92, ≥ 0.90, ≤ 1.00, ≤ 10 ×",
        "The pilot brings one file of 700 MB for each call and computes its SHA-256 while it does; `dd` copies the same file in blocks of 1 MiB, the bare socket sends it by `sendfile`, neither with a digest. All end with `fdatasync`; one process each, no retries.",
        _staging,
    ),
    Benchmark(
        10, "rules", "rules", "≤ 5 µs with 10⁵ rules",
        "A decision looks rules up by the index and evaluates what is left in CEL, in one process, with nothing stored; *without the index* evaluates rule after rule. For *one condition* a context is handed over once and ten conditions are evaluated, by Forestay's CEL and by cel-python.",
        _rules,
    ),
    Benchmark(
        11, "breadth of flows", "flow_scale_1000000", "≤ 60 s, ≤ 1 GiB",
        "One arm: a flow's jobs are stored in PostgreSQL in bundles by one orchestrator and one server, claimed and completed in bundles by 24 simulated pilots over HTTP, and everything is killed once.",
        _breadth,
        beside.breadth_missing(),
    ),
    Benchmark(
        12, "control plane", "control_plane", "≤ 0.25 core, ≥ 2,000 a second, ≤ 2 ×",
        "10⁵ simulated pilots, and 10³ before them, share 4,000 connections to one server; each sends a heartbeat of its own every 20 s, and some claim and complete 32 jobs at a time, all stored in OpenSearch.",
        _control,
    ),
)  # fmt: skip


def verdict(fields: Fields, *, reached: bool) -> str:
    """Only what counts can have reached a goal."""
    if not refusal(fields):
        return "yes" if reached else "no"
    return "not current" if reached else "no, measured before"


def section() -> Iterator[str]:
    yield from (
        "## The twelve benchmarks",
        "",
        (
            "A goal is reached if the worse end of the 95 % interval of all kept executions reaches it. An execution counts if its command is the one shown, its commit is in this history, and no file differed from that commit; any other is marked *measured before*, with the reason, "
            "and reaches nothing: *not current* where its figures would. Ratios are computed here from the runs; the results keep none. *Not compared* is what the benchmark should have been compared with and was not."
        ),
        "",
        "| # | what | command | figure | goal | reached | measured | not compared |",
        "| --: | --- | --- | --- | --- | --- | --- | --- |",
    )
    for benchmark in TWELVE:
        kept = counting(benchmark.kept)
        head = f"| {benchmark.number} | {benchmark.name} | `{benchmark.command}` |"
        if not kept:
            yield f"{head} not completed yet, see [benchmarks](benchmarks.md) | {benchmark.goal} | – | – | {benchmark.missing or '–'} |"
            continue
        text, reached = benchmark.read(kept)
        times = f" ({len(kept)} executions)" if len(kept) > 1 else ""
        yield f"{head} {text} | {benchmark.goal} | {verdict(kept[0], reached=reached)} | {when(kept[0])}{times} | {benchmark.missing or '–'} |"
    yield from (
        "",
        "### What each arm does per call",
        "",
        "| # | what |",
        "| --: | --- |",
        *(f"| {benchmark.number} | {benchmark.arms} |" for benchmark in TWELVE),
        "",
    )
    yield from beside.section()


def pictures() -> Iterator[tuple[str, str]]:
    yield from beside.pictures()
