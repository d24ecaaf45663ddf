"""What each fault-tolerant pattern costs, for each of the four ways to submit a job (paper P0, sections 3A and 4).

Messages, time and processor time of the same job with and without its failure, in turns on one real server, reconciler and host.

    just pattern-costs                 # seven rounds, and the page
    python -m tests.system.matrix.pattern_cost --rounds 1 --patterns re-submit --no-keep
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast
from uuid import uuid4

from bench.harness import keep
from tests.system.matrix.cut_wire import Wire, cut_wire
from tests.system.matrix.room import WORK, Room, room
from tests.system.matrix.scenario import DIGEST, FAIL, GOOD, RESTAGE, SAME, changed
from tests.system.matrix.site import PATIENCE, CallbackDesk, FailureSite, failure_site, until
from tests.system.matrix.submitters import Submission
from tests.unit.apps.server.processes import Started

from forestay.client import ForestayClient, JobFailedError, fire, run, wait
from forestay.client.api.answers import FINAL
from forestay.client.api.schemas import NewJob, SpecificationJson

ASKS_EVERY = 0.1
"""Seconds between two questions of a submitter who polls."""


@dataclass(frozen=True)
class Pattern:
    """A failure, and the pattern that answers it."""

    name: str
    failure: str
    cause: str
    step: Mapping[str, object] | None
    """Of the rule that answers; none: the job's own policy does."""
    specification: Callable[[Room, bool], SpecificationJson]
    attempts: int = 2
    state: str = "completed"


def _once(first: str) -> Callable[[Room, bool], str]:
    """What goes wrong at the first try only."""

    def line(where: Room, failing: bool) -> str:
        mark = where.folder / uuid4().hex
        return f"test -e {mark} || {{ touch {mark}; {first}; }}; {WORK}" if failing else WORK

    return line


def _restaged(where: Room, failing: bool) -> SpecificationJson:
    path, web = f"/{uuid4().hex}", where.site.web
    web.files[path] = GOOD
    web.failures[path] = [b"evil"] if failing else []
    return where.spec(inputs=[{"name": "x", "source": web.url(path), "sha256": DIGEST}])


def _refused(where: Room, failing: bool) -> SpecificationJson:
    parser = "import argparse; p = argparse.ArgumentParser(); p.add_argument('--n', type=int); p.parse_args(); open('made', 'w')"
    return where.spec([sys.executable, "-c", parser, "--n", "many" if failing else "1"], max_attempts=3)


def _late(where: Room, failing: bool) -> SpecificationJson:
    return where.spec("sleep 1.3; echo done > made", resources={"wall": 1 if failing else 20})


PATTERNS = (
    Pattern(
        "re-stage",
        "the first copy of the input has another digest",
        "data-corrupt",
        RESTAGE,
        _restaged,
    ),
    Pattern(
        "re-submit",
        "the program exits successfully without outputs, once",
        "output-missing",
        SAME,
        lambda where, failing: where.spec(_once("exit 0")(where, failing)),
    ),
    Pattern(
        "re-submit, changed",
        "it needs 1.3 s and has 1 s",
        "time",
        changed("wall", factor=20, at_most=60),
        _late,
    ),
    Pattern(
        "own policy",
        "the program crashes once (SIGSEGV)",
        "code",
        None,
        lambda where, failing: where.spec(_once("kill -SEGV $$")(where, failing), max_attempts=2),
    ),
    Pattern(
        "force-fail",
        "the program rejects its arguments",
        "bad-input",
        FAIL,
        _refused,
        attempts=1,
        state="failed",
    ),
)


@dataclass(frozen=True)
class Cost:
    """One job, as its submitter saw it."""

    pattern: str
    submission: str
    failing: bool
    state: str
    attempts: int
    wall: float
    """Seconds from the call to what the submitter learns; of a job that is fired and forgotten, to its end."""
    asked: int
    """Requests of the submitter."""
    notified: int
    """Notifications to the submitter."""
    host_asked: int
    """Requests of the host, those among them by which it is alive and asks for work."""
    control_cpu: float
    """Processor seconds of server and reconciler meanwhile."""
    host_cpu: float
    """Of the pilot, and of what it ran."""


@dataclass(frozen=True)
class Bench:
    """Where all of it is measured: one room with one host, and the submitter's own way to the server."""

    where: Room
    wire: Wire
    desk: CallbackDesk
    host: Started

    @property
    def control(self) -> tuple[Started, ...]:
        return (self.where.site.server, self.where.site.reconciler)


@contextmanager
def bench(site: FailureSite) -> Iterator[Bench]:
    with room(site, failing=False) as where, cut_wire(site.server.url) as wire:
        where.reach(wire)
        for pattern in PATTERNS:
            if pattern.step is not None:
                where.rule(pattern.cause, pattern.step)
        yield Bench(where, wire, site.desk, where.host().started)


def measure(at: Bench, pattern: Pattern, way: Submission, *, failing: bool) -> Cost:
    """Run one job and see that it went as it is to go."""
    specification = pattern.specification(at.where, failing)
    asked, host_asked = at.wire.requests, at.where.site.wire.requests
    control, host = _cpu(*at.control), _cpu(at.host)
    began = time.monotonic()
    name, number = _submit(at, way, specification)
    wall = time.monotonic() - began
    asked, host_asked = at.wire.requests - asked, at.where.site.wire.requests - host_asked
    control, host = _cpu(*at.control) - control, _cpu(at.host) - host
    job: Any = at.where.operator.job(name)
    wanted = (pattern.state, pattern.attempts) if failing else ("completed", 1)
    assert (job["state"], job["attempt"]) == wanted, (pattern.name, way.value, failing, job["state"], job["attempt"])
    if failing:
        causes = {incident["cause"] for incident in at.where.operator.find_incidents({"job": name}).incidents}
        assert causes == {pattern.cause}, causes
    return Cost(
        pattern.name, way.value, failing, job["state"], job["attempt"], round(wall, 4), asked, number, host_asked,
        round(control, 3), round(host, 3),
    )  # fmt: skip


def _cpu(*processes: Started) -> float:
    """With the children that they have waited for."""
    ticks = 0
    for started in processes:
        fields = Path(f"/proc/{started.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(fields[place]) for place in (11, 12, 13, 14))
    return ticks / os.sysconf("SC_CLK_TCK")


def _submit(at: Bench, way: Submission, spec: SpecificationJson) -> tuple[str, int]:
    """The job, and how many notifications came of it. Nobody asks more than this way of submitting needs: what is asked is what is measured."""
    client, path = at.where.client, f"/{uuid4().hex}"
    if way is Submission.SYNCHRONOUS:
        try:
            return run(client, spec, timeout=PATIENCE)["id"], 0
        except JobFailedError as failure:
            return failure.job, 0
    if way is Submission.POLLING:
        (accepted,) = client.submit([{}], spec)
        until(lambda: _over(client, accepted["id"]), "the end")
        return accepted["id"], 0
    if way is Submission.NOTIFICATION:
        (accepted,) = client.submit([cast(NewJob, {"callback": at.desk.url(path)})], spec)
        until(lambda: at.desk.seen.get(path), "the notification")
        return accepted["id"], len(at.desk.seen[path])
    name = fire(client, spec)
    wait(at.where.operator, [name], states=FINAL, timeout=PATIENCE)
    return name, 0


def _over(client: ForestayClient, name: str) -> bool:
    if client.job(name)["state"] in FINAL:
        return True
    time.sleep(ASKS_EVERY)
    return False


def measure_all(site: FailureSite, patterns: Sequence[Pattern], rounds: int) -> list[Cost]:
    """Every pattern by every way, with and without its failure in turns, the first of the two changing from round to round."""
    costs: list[Cost] = []
    for number in range(rounds):
        # A tenant of its own each: many failures of one cause would be a storm, and be held back.
        with bench(site) as at:
            for failing in (False, True):  # the first of anything costs more
                measure(at, patterns[0], Submission.SYNCHRONOUS, failing=failing)
            for pattern in patterns:
                for way in Submission:
                    turns = (False, True) if number % 2 == 0 else (True, False)
                    costs += [measure(at, pattern, way, failing=failing) for failing in turns]
    return costs


def table(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """Medians of each pattern and way, with and without the failure; processor time as the mean, since its clock ticks coarsely."""
    rows = []
    names = list(dict.fromkeys((cost.pattern, cost.submission) for cost in costs))
    for pattern, way in names:
        row: dict[str, Any] = {"pattern": pattern, "submission": way}
        for failing, word in ((False, "clean"), (True, "hurt")):
            some = [cost for cost in costs if (cost.pattern, cost.submission, cost.failing) == (pattern, way, failing)]
            row[word] = {
                "runs": len(some),
                "attempts": some[0].attempts,
                "state": some[0].state,
                "wall": median(cost.wall for cost in some),
                "asked": median(cost.asked for cost in some),
                "told": median(cost.notified for cost in some),
                "host_asked": median(cost.host_asked for cost in some),
                "control_cpu": round(sum(cost.control_cpu for cost in some) / len(some), 4),
                "host_cpu": round(sum(cost.host_cpu for cost in some) / len(some), 4),
            }
        rows.append(row)
    return rows


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--patterns", default=",".join(pattern.name.replace(", ", "-") for pattern in PATTERNS))
    parser.add_argument("--no-keep", action="store_true", help="write no results")
    args = parser.parse_args()
    wanted = args.patterns.split(",")
    chosen = [pattern for pattern in PATTERNS if pattern.name.replace(", ", "-") in wanted]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        async with failure_site(Path(folder), free_tries="0,0") as site:
            costs = await asyncio.to_thread(measure_all, site, chosen, args.rounds)
    rows = table(costs)
    for row in rows:
        clean, hurt = row["clean"], row["hurt"]
        sys.stderr.write(
            f"  {row['pattern']:<20} {row['submission']:<16} {clean['wall']:6.2f} → {hurt['wall']:6.2f} s,"
            f" asked {clean['asked']:g} → {hurt['asked']:g}, told {hurt['told']:g},"
            f" hosts {clean['host_asked']:g} → {hurt['host_asked']:g},"
            f" CPU {clean['control_cpu'] * 1e3:.0f} → {hurt['control_cpu'] * 1e3:.0f} ms\n"
        )
    if not args.no_keep:
        failures = {pattern.name: pattern.failure for pattern in PATTERNS}
        figures = {
            "rounds": args.rounds, "load": [load, os.getloadavg()[0]], "asks_every": ASKS_EVERY, "failures": failures,
            "rows": rows, "jobs": [asdict(cost) for cost in costs],
        }  # fmt: skip
        sys.stderr.write(f"raw figures in {keep('pattern_cost', [], figures)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
