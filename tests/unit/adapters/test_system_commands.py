"""Programs of the system are bounded in time and in what is read."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from tests.speed import clock_limit

from forestay.adapters.system.clock import SystemClock
from forestay.adapters.system.commands import PacedCommands, SystemCommands
from forestay.domain.sites.pace import Pace
from forestay.ports.errors import Permanent, Transient


async def test_what_a_program_says_and_how_it_ended() -> None:
    ran = await SystemCommands().run(["sh", "-c", "cat; echo bad >&2; exit 3"], stdin="hé")
    assert (ran.code, ran.out, ran.err) == (3, "hé", "bad\n")


async def _unread() -> list[int]:
    """So often a program that ends without reading any of the megabyte that it is given."""
    return [(await SystemCommands().run(["true"], stdin="x" * 1_000_000, seconds=20)).code for _ in range(20)]


async def test_a_program_that_does_not_read_what_it_is_given_is_not_waited_for() -> None:
    began = time.monotonic()
    assert await _unread() == [0] * 20
    assert time.monotonic() - began < clock_limit(20)


def test_nor_on_the_loop_that_agents_run_on() -> None:
    began = time.monotonic()
    assert uvloop.run(_unread()) == [0] * 20
    assert time.monotonic() - began < clock_limit(20)


async def test_the_environment_is_the_whole_of_it() -> None:
    ran = await SystemCommands().run(["/usr/bin/env"], environment={"ONLY": "this"})
    assert ran.out == "ONLY=this\n"


async def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! >{pids}; echo $$ >>{pids}; wait"
    began = time.monotonic()
    with pytest.raises(Transient, match="did not finish"):
        await SystemCommands().run(["sh", "-c", script], seconds=0.5)
    assert time.monotonic() - began < clock_limit(20)
    await until(lambda: all(gone(int(pid)) for pid in pids.read_text().split()))


async def test_a_child_that_went_its_own_way_with_the_pipes_is_not_waited_for(tmp_path: Path) -> None:
    child = tmp_path / "child"
    began = time.monotonic()
    with pytest.raises(Transient, match="did not finish"):
        await SystemCommands().run(["sh", "-c", f"setsid sleep 600 & echo $! >{child}; wait"], seconds=0.5)
    assert time.monotonic() - began < clock_limit(30)
    os.kill(int(child.read_text()), signal.SIGKILL)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_program_that_says_too_much_is_ended() -> None:
    with pytest.raises(Transient, match="more than"):
        await SystemCommands(most=100_000).run(["yes"], seconds=30)


async def test_a_program_that_is_not_there_is_a_wrong_set_up() -> None:
    with pytest.raises(Permanent):
        await SystemCommands().run(["forestay-no-such-program"])


async def test_an_asker_who_goes_away_leaves_nothing_running(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    task = asyncio.create_task(SystemCommands().run(["sh", "-c", f"echo $$ >{pid}; exec sleep 600"]))
    await until(lambda: pid.exists() and pid.read_text().strip() != "")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: gone(int(pid.read_text())))


async def test_a_pace_is_kept() -> None:
    paced = PacedCommands(SystemCommands(), SystemClock(), Pace(rate=20, burst=2), beside=8)
    began = time.monotonic()
    await asyncio.gather(*(paced.run(["true"]) for _ in range(8)))
    assert time.monotonic() - began >= 6 / 20 - 0.01
    assert paced.waited > 0
