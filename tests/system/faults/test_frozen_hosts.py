"""Hosts that stand still past their lease and go on as if nothing had been: frozen as a whole, or put to sleep. `just faults` runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from tests.system.faults.broken_libc import BrokenLibc
from tests.system.faults.freezer import Freezer
from tests.system.matrix.room import Room, room
from tests.system.matrix.site import FailureSite, Host, failure_site, until

from forestay.client.api.schemas import NewJob, SpecificationJson

pytestmark = [pytest.mark.slow, pytest.mark.pair]

AT_ONCE = 4
"""Of five silent pilots the reconciler would rather doubt itself."""
FREEZES, SLEEPS = 52, 12
PATIENCE = 120.0
TEN_MINUTES = 600.0


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FailureSite]:
    async with failure_site(tmp_path, lease=4, scan_every=0.5) as running:
        yield running


@dataclass
class Frozen:
    """A host that can be frozen."""

    name: str
    freezer: Freezer
    host: Host


def hosts(site: FailureSite, where: Room, **options: str) -> list[Frozen]:
    made = []
    for number in range(AT_ONCE):
        freezer = Freezer(site)
        host = where.host(f"frozen-{number}", group=freezer.group, cpus="1", time_left=str(86_400), **options)
        made.append(Frozen(f"frozen-{number}", freezer, host))
    return made


def submitted(where: Room, script: str, many: int, **more: Any) -> list[str]:
    spec = cast(SpecificationJson, {"name": "overlap", "command": ["sh", "-c", script], "outputs": ["made"], **more})
    return [accepted_json["id"] for accepted_json in where.client.submit([cast(NewJob, {}) for _ in range(many)], spec)]


def all_are(where: Room, names: list[str], *states: str) -> None:
    until(lambda: all(where.operator.job(name)["state"] in states for name in names), f"all to be {states}", PATIENCE)


def late_completions(where: Room, job: str) -> int:
    story: Any = where.operator.story(job)
    return sum(entry["kind"] == "late-completion" for entry in story["evidence"])


def begun(folder: Path, job: str) -> list[str]:
    """The attempts of a job that have begun, as its own payloads wrote."""
    place = folder / f"began-{job}"
    return place.read_text().split() if place.exists() else []


def only_the_second_counts(where: Room, job: str, *lost: str) -> None:
    """`lost`: how it came to be claimed again."""
    found_job: Any = where.operator.job(job)
    assert (found_job["state"], found_job["attempt"], found_job["winner"]["attempt"]) == ("completed", 2, 2)
    assert found_job["overlap_possible"] is True
    manifest = Path(where.operator.outputs(job)["manifest"]["path"])
    assert manifest.with_name("made").read_text().strip() == "2"
    events = [line["event"] for line in where.operator.story(job)["story"]]
    assert events == ["create", "claim", *lost, "claim", "complete"]


async def test_a_host_that_is_frozen_past_its_lease_overlaps_and_one_commit_counts(site: FailureSite) -> None:
    def scenario() -> None:
        with room(site, failing=False) as where:
            frozen = hosts(site, where)
            try:
                for turn in range(FREEZES // AT_ONCE):
                    one_freeze(where, frozen, turn)
            finally:
                for other_frozen in frozen:
                    other_frozen.freezer.thaw()

    await asyncio.to_thread(scenario)


def one_freeze(where: Room, frozen: list[Frozen], turn: int) -> None:
    gate = where.folder / f"gate-{turn}"
    script = (
        f"echo $FORESTAY_ATTEMPT >> {where.folder}/began-$FORESTAY_JOB; "
        f"while ! test -e {gate}; do sleep 0.05; done; echo $FORESTAY_ATTEMPT > made"
    )
    names = submitted(where, script, AT_ONCE)
    until(lambda: all(begun(where.folder, name) for name in names), "all to have begun", PATIENCE)
    for other_frozen in frozen:
        other_frozen.freezer.freeze()
    all_are(where, names, "available")
    heir = where.host(f"heir-{turn}", slots=str(AT_ONCE))
    until(lambda: all(begun(where.folder, name) == ["1", "2"] for name in names), "all to have begun again", PATIENCE)
    gate.touch()
    for other_frozen in frozen:
        other_frozen.freezer.thaw()
    all_are(where, names, "completed")
    until(lambda: all(late_completions(where, name) == 1 for name in names), "the late ends to be kept", PATIENCE)
    for name in names:
        only_the_second_counts(where, name, "release")
    heir.started.kill()


async def test_a_host_that_slept_past_its_lease_stops_itself_before_it_does_anything(site: FailureSite) -> None:
    """Its own clock tells it on waking: what it runs with effects outside is stopped, what it held ready is not begun, and nothing of it is committed."""

    def scenario() -> None:
        libc = BrokenLibc(site.folder / "libc")
        with room(site, failing=False) as where:
            asleep = hosts(site, where, batch="2", prepare=libc.prepare)
            try:
                for turn in range(SLEEPS // AT_ONCE):
                    one_sleep(where, asleep, libc, turn)
            finally:
                for frozen in asleep:
                    frozen.freezer.thaw()

    await asyncio.to_thread(scenario)


def one_sleep(where: Room, asleep: list[Frozen], libc: BrokenLibc, turn: int) -> None:
    heirs = where.folder / f"heirs-{turn}"
    # The first attempt goes on for ever; only its pilot can end it.
    script = (
        f"echo $FORESTAY_ATTEMPT >> {where.folder}/began-$FORESTAY_JOB; "
        f"if test -e {heirs}; then echo $FORESTAY_ATTEMPT > made; exit; fi; "
        f"trap 'touch {where.folder}/stopped-$FORESTAY_JOB; exit 1' TERM; while :; do sleep 0.02; done"
    )
    names = submitted(where, script, 2 * AT_ONCE, effects="external")
    all_are(where, names, "running")
    until(lambda: sum(bool(begun(where.folder, name)) for name in names) == AT_ONCE, "one of two to have begun")
    running = [name for name in names if begun(where.folder, name)]
    ready = [name for name in names if name not in running]
    for frozen in asleep:
        frozen.freezer.freeze()
    # They have effects outside, so a person must say that they may run again.
    all_are(where, names, "faulted")
    heirs.touch()
    for name in names:
        where.operator.retry(name, reason="the sleepers are cut off from what the jobs change")
    heir = where.host(f"heir-{turn}", slots=str(AT_ONCE))
    all_are(where, names, "completed")
    libc.clocks(asleep=TEN_MINUTES * (turn + 1))
    for frozen in asleep:
        frozen.freezer.thaw()
    until(lambda: all(stopped(where, name) for name in running), "the sleepers to stop their jobs", 10)
    until(lambda: all(late_completions(where, name) == 1 for name in names), "the late ends to be kept", PATIENCE)
    assert {tuple(begun(where.folder, name)) for name in running} == {("1", "2")}
    assert {tuple(begun(where.folder, name)) for name in ready} == {("2",)}, "a sleeper began what it had held ready"
    for name in names:
        only_the_second_counts(where, name, "quarantine", "retry")
    heir.started.kill()


def stopped(where: Room, name: str) -> bool:
    return (where.folder / f"stopped-{name}").exists()


async def test_a_short_sleep_of_the_clocks_is_noticed_before_the_next_heartbeat(tmp_path: Path) -> None:
    """While a host sleeps the timers of its processes stand still as well: whoever waits for the end of a lease by them wakes too late."""

    def scenario(site: FailureSite) -> None:
        libc = BrokenLibc(site.folder / "libc")
        with room(site, failing=False) as where:
            where.host("sleeper", time_left=str(86_400), prepare=libc.prepare)
            for turn in range(SLEEPS):
                script = (
                    f"trap 'touch {where.folder}/stopped-$FORESTAY_JOB; exit 1' TERM; "
                    f"touch {where.folder}/began-$FORESTAY_JOB; while :; do sleep 0.02; done"
                )
                (name,) = submitted(where, script, 1, effects="external")
                until((where.folder / f"began-{name}").exists, "its start")
                libc.clocks(asleep=TEN_MINUTES * (turn + 1))
                until(lambda name=name: stopped(where, name), "the job to be stopped", 8)  # type: ignore[misc]
                where.operator.cancel(name, reason="it would be tried again")

    async with failure_site(tmp_path, lease=30) as site:
        await asyncio.to_thread(scenario, site)
