"""Three domains in network namespaces, one of them on Slurm: lines that are cut for a minute, and a domain that is gone for good. `just peers` runs it."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.live.three_domains import SLOTS, WES, ThreeDomains, three_domains
from tests.speed import clock_limit
from tests.unit.apps.server.running import until
from tests.unit.domain.peers.test_routing import simulated

from forestay.apps.compose.components import make_components
from forestay.services.peers.peer_links import EVENT

pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.slow]
FLOW = """
forestay: 1
name: survey
flows:
  night:
    name: night
    params: {n: null}
    tasks:
      reduce:
        command: [sh, -c, 'echo "begin $0 $(date +%s.%N) $PWD" >> LEDGER; sleep SECONDS; echo "end $0 $(date +%s.%N) $PWD" >> LEDGER', "${params.n}"]
        expected_runtime: SECONDS s
tasks:
  nights: {flow: night, domain: any, params: {n: "${n}"}, scatter: {n: {range: [0, COUNT]}}}
"""
CUT = 60.0
LEASE = 20
ALLOWED = 10.0
"""Seconds after the end of the lease."""


class Line(NamedTuple):
    what: str
    n: int
    at: float
    domain: str


class Ledger:
    """What commands wrote about themselves, in a file that all domains see."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.file = folder, folder / name
        self.file.touch()

    def flow(self, *, count: int, seconds: int) -> str:
        text = FLOW.replace("LEDGER", str(self.file)).replace("SECONDS", str(seconds))
        return text.replace("COUNT", str(count)).replace("name: survey", f"name: {self.file.name}")

    def lines(self, what: str) -> list[Line]:
        lines = []
        for line in self.file.read_text().splitlines():
            kind, n, at, place = line.split(" ", 3)
            if kind == what:
                lines.append(Line(kind, int(n), float(at), Path(place).relative_to(self.folder).parts[0]))
        return lines

    def begun(self) -> Counter[str]:
        return Counter(line.domain for line in self.lines("begin"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("three")


@pytest.fixture(scope="module")
async def three(folder: Path) -> AsyncIterator[ThreeDomains]:
    async with three_domains(folder) as running:
        yield running


def say(text: str) -> None:
    sys.stderr.write(f"\n  {text}\n")


async def begun_in(ledger: Ledger, *domains: str) -> None:
    async def some() -> bool:
        await asyncio.sleep(0.2)
        return all(ledger.begun()[domain] for domain in domains)

    await until(some, f"work in {domains}", 180)


@pytest.mark.ledger("P0-27", "P0-28", "P0-33")
async def test_lines_that_are_cut_for_a_minute_lose_nothing_and_start_nothing_twice(
    three: ThreeDomains, folder: Path
) -> None:
    await three.introduce(lease=180)
    await three.linked()
    ledger, count = Ledger(folder, "cut"), 60
    run = await three.run(ledger.flow(count=count, seconds=15), "cut")
    await begun_in(ledger, "north", "south", "west")
    others = (three.south, three.west)
    three.north.cut(*others)
    say(f"cut from the north; begun so far: {dict(ledger.begun())}")
    await asyncio.sleep(CUT)
    three.north.join(*others)
    await three.linked()
    for place in others:
        place.cut(three.north)
    say(f"cut toward the north; begun so far: {dict(ledger.begun())}")
    await asyncio.sleep(CUT)
    for place in others:
        place.join(three.north)
    healed = time.time()
    assert await three.ended(run, 600) == "COMPLETE"
    last = max(line.at for line in ledger.lines("end"))
    say(f"done {time.time() - max(healed, last):.1f} s after the line was whole and the last job had ended")
    begun = Counter(line.n for line in ledger.lines("begin"))
    ended = Counter(line.n for line in ledger.lines("end"))
    say(f"{count} sub-flows began as {dict(ledger.begun())}")
    assert begun == dict.fromkeys(range(count), 1), "nothing lost, nothing started twice"
    assert ended == begun
    assert time.time() - max(healed, last) <= clock_limit(60), "reconciled within a minute"


async def test_a_thousand_sub_flows_by_the_real_capacities_are_routed_nearly_as_well_as_can_be(
    three: ThreeDomains,
) -> None:
    """The router is production's; the capacities are what the three real domains told of themselves just now; only the thousand are simulated."""
    tags = (await three.north.ask(f"{WES}/service-info"))["tags"]
    fields = {peer["peer"]: peer["slots"] for peer in (await three.north.ask("/v1/peers"))["peers"]}
    domains = {"": (int(tags["forestay.slots"]), 1.0)} | {name: (slots, 1.0) for name, slots in fields.items()}
    assert domains[""] == (SLOTS["north"], 1.0)
    total, _, best = simulated(random.Random(1), 1000, domains, spread=0.0)
    say(f"regret {total / best - 1:.4%} by {domains}")
    assert total / best - 1 <= 0.01


async def test_the_work_of_a_domain_that_is_gone_for_good_goes_elsewhere(three: ThreeDomains, folder: Path) -> None:
    await three.introduce(lease=LEASE)
    await three.linked()
    ledger, count = Ledger(folder, "killed"), 12
    run = await three.run(ledger.flow(count=count, seconds=20), "killed")
    await begun_in(ledger, "south")
    three.south.kill()
    killed = time.time()
    say(f"the south is gone; begun so far: {dict(ledger.begun())}")
    parts = make_components(three.north.domain.settings())
    await parts.store.open()
    try:

        async def moved() -> list[float]:
            await asyncio.sleep(0.2)
            records = await parts.store.find_records(kind=EVENT, job="south")
            return [record.at / 1000 for record in records if str(record.body["what"]).startswith("moved:")]

        first = min(await until(moved, "a move", LEASE + 60))
        assert await three.ended(run, 400) == "COMPLETE"
        moves = await moved()
    finally:
        await parts.store.close()
    say(f"{len(moves)} left the south, {first - killed:.1f} to {max(moves) - killed:.1f} s after it was killed")
    assert max(moves) - killed <= LEASE + ALLOWED
    elsewhere = Counter(line.n for line in ledger.lines("begin") if line.domain != "south")
    assert all(many == 1 for many in elsewhere.values()), "each was placed anew once"
    ended = {line.n for line in ledger.lines("end")}
    assert ended == set(range(count))
    assert {line.n for line in ledger.lines("end") if line.domain != "south"} == set(elsewhere)
