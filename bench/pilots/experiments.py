"""The experiments at the paper's size: every arm with the same seeds, means and standard deviations."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from bench.pilots.arms import ALONE, ARMS, C3, LOOK_AHEAD, NO_CACHE, OURS, PAPER, SITE, Arm, Submission
from bench.pilots.bound import clairvoyant
from bench.pilots.draws import CONDITIONS, Draws
from bench.pilots.simulation import Outcome, Simulation
from bench.pilots.workloads import WORKLOADS, Workload, tier0

HOSTS, SLOTS = 30, 4
GOAL = 1.03
HELD_TO = ("d2f2", "d3f3")


@dataclass(frozen=True, slots=True)
class Spread:
    """Figures of several seeds."""

    mean: float
    deviation: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(round(statistics.fmean(values), 4), round(deviation, 4), round(max(values), 4))


@dataclass(frozen=True, slots=True)
class Row:
    """One arm under one condition."""

    workload: str
    condition: str
    arm: str
    submission: str
    seeds: int
    makespan: Spread
    over_bound: Spread
    """Makespan divided by the clairvoyant bound of the same seed, synchronous."""
    hit_ratio: Spread
    near_ratio: Spread
    """Reads that did not go to the storage element."""
    stage_in: Spread
    """Mean seconds that a job with inputs spends bringing them."""
    runs: Spread
    storage_reads: Spread


def run_one(
    workload: Workload,
    condition: str,
    arm: Arm,
    seed: int,
    submission: Submission = Submission.RUNNING,
    *,
    hosts: int = HOSTS,
) -> tuple[Outcome, float]:
    """One run, and how much longer it was than the bound."""
    draws = Draws(seed, CONDITIONS[condition])
    outcome = Simulation(workload, draws, arm, hosts=hosts, slots=SLOTS, submission=submission).run()
    bound = clairvoyant(workload, draws, hosts * SLOTS)
    return outcome, outcome.makespan / bound.synchronous


def row(
    workload: Workload, condition: str, arm: Arm, seeds: Iterable[int], submission: Submission = Submission.RUNNING, *, hosts: int = HOSTS
) -> Row:  # fmt: skip
    runs = [run_one(workload, condition, arm, seed, submission, hosts=hosts) for seed in seeds]

    def of(take: Callable[[Outcome], float]) -> Spread:
        return spread([take(outcome) for outcome, _ in runs])

    return Row(
        workload.name, condition, arm.name, submission.value, len(runs),
        makespan=of(lambda outcome: outcome.makespan),
        over_bound=spread([over for _, over in runs]),
        hit_ratio=of(lambda outcome: outcome.hit_ratio),
        near_ratio=of(lambda outcome: (outcome.hits + outcome.peer_reads) / max(1, outcome.reads)),
        stage_in=of(lambda outcome: outcome.stage_in_mean),
        runs=of(lambda outcome: outcome.runs),
        storage_reads=of(lambda outcome: outcome.storage_reads),
    )  # fmt: skip


def grid(seeds: Sequence[int], on_event: Callable[[Row], None]) -> list[Row]:
    """Every workload, condition, arm and way to submit that belongs together."""
    rows: list[Row] = []
    for name, make in WORKLOADS.items():
        workload = make()
        for condition in CONDITIONS:
            ways = [(arm, Submission.RUNNING) for arm in (*PAPER, ALONE, *OURS)]
            ways += [(arm, Submission.ON_DEMAND) for arm in (*PAPER, SITE, LOOK_AHEAD)]
            ways += [(NO_CACHE, Submission.DIRECT)]
            for arm, submission in ways:
                rows.append(row(workload, condition, arm, seeds, submission))
                on_event(rows[-1])
        assert name == workload.name
    return rows


def tier0_rows(seeds: Sequence[int]) -> list[Row]:
    """The Tier0 flow's shape on ten machines of four slots, as in the paper."""
    workload = tier0()
    ways = [
        (NO_CACHE, Submission.DIRECT),
        *((ARMS[name], Submission.RUNNING) for name in ("no cache", "C3", "site cache")),
    ]
    return [row(workload, "d1f1", arm, seeds, submission, hosts=10) for arm, submission in ways]


def timelines(seed: int) -> dict[str, list[tuple[float, int]]]:
    """How many jobs of W3 run over time, for the three ways to submit."""
    timelines = {}
    for arm, submission in ((NO_CACHE, Submission.DIRECT), (C3, Submission.RUNNING), (C3, Submission.ON_DEMAND)):
        draws = Draws(seed, CONDITIONS["d1f1"])
        simulation = Simulation(
            WORKLOADS["W3"](), draws, arm, hosts=HOSTS, slots=SLOTS, submission=submission, record=True
        )
        by_approval: dict[float, int] = {0.0: 0}
        for at, running in simulation.run().running:
            by_approval[float(round(at))] = running
        timelines[submission.value] = sorted(by_approval.items())
    return timelines


def find(rows: Iterable[Row], **wanted: str) -> Row:
    """The one row that is so."""
    matching_rows = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    if len(matching_rows) != 1:
        raise LookupError(f"{len(matching_rows)} rows are {wanted}")
    return matching_rows[0]


def goals(rows: Sequence[Row]) -> dict[str, object]:
    """Whether look-ahead with re-staging keeps to the bound, and how often files are where they are read."""
    fields: dict[str, object] = {}
    reached = True
    for workload in WORKLOADS:
        for condition in CONDITIONS:
            row = find(rows, workload=workload, condition=condition, arm=LOOK_AHEAD.name, submission="running")
            fields[f"{workload} {condition}"] = {
                "worst seed over bound": row.over_bound.most,
                "hit ratio": row.hit_ratio.mean,
            }
            if condition in HELD_TO:
                reached = reached and row.over_bound.most <= GOAL and row.hit_ratio.mean >= 0.99995
    return {"over bound": fields, "goal": GOAL, "reached": reached}


def plain(rows: Iterable[Row]) -> list[dict[str, object]]:
    return [asdict(row) for row in rows]
