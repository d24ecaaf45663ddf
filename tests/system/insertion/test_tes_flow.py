"""The same steps through TES by an unmodified py-tes, on pilots that meet the same failures: the client sees each task end well, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.system.chaos.processes import free_port
from tests.system.insertion.failures import replica
from tests.system.insertion.plugin_failures import (
    FETCHING,
    LEASE,
    OUTAGE,
    STEADY,
    cut_power,
    jobs,
    rule,
    running,
    took_effect_once,
)
from tests.system.insertion.programs import greedy
from tests.system.insertion.shell import MORE
from tests.system.matrix.room import Room, room
from tests.system.matrix.site import FailureSite, failure_site, until
from tests.unit.pilot.process.test_isolation import memory_group

pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.ledger("P0-22")]
FREE = "0,60,600,3600"


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FailureSite]:
    folder = tmp_path_factory.mktemp("site")
    async with failure_site(folder, lease=LEASE, free_tries=FREE, tes_containers="host-paths") as site:
        yield site


@pytest.fixture
def here(site: FailureSite) -> Iterator[Room]:
    with room(site, failing=True) as made:
        yield made


@dataclass(eq=False)
class Client:
    """A program that submits by py-tes, polls, and submits what comes next."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def said(self) -> str:
        return (self.folder / "client.log").read_text()

    def well(self, seconds: float = 240) -> None:
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not ended after {seconds:g} s: {self.said}")
        assert code == 0, self.said
        assert (self.folder / "out" / "merged.txt").read_text().split() == ["1", "2"]
        assert "ERROR" not in self.said


@contextmanager
def client(here: Room, program: str) -> Iterator[Callable[[], Client]]:
    folder = here.folder / "flow"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "measure").write_text(program)
    (folder / "bin" / "measure").chmod(0o755)
    started: list[Client] = []

    def start() -> Client:
        token = here.site.running.domain.token("submitter", tenant=here.tenant)
        words = [sys.executable, str(Path(__file__).with_name("tes_flow.py")), here.site.server.url, str(folder)]
        with (folder / "client.log").open("wb") as sink:
            known = os.environ | {"TES_TOKEN": token}
            started.append(Client(folder, subprocess.Popen(words, env=known, stdout=sink, stderr=sink)))
        return started[-1]

    try:
        yield start
    finally:
        for client in started:
            if client.process.poll() is None:
                client.process.kill()
                client.process.wait()


@pytest.mark.slow
def test_it_survives_tasks_that_are_killed_for_their_memory(here: Room) -> None:
    group = memory_group()
    if not group:
        pytest.skip("this process may make no control groups")
    rule(here, "memory", MORE)
    here.host(slots="2", cgroup=group)
    with client(here, greedy()) as start:
        start().well()
    for job in jobs(here, "part").values():
        assert job["attempt"] == 2
        (incident,) = here.operator.find_incidents({"job": job["id"]}).incidents
        assert (incident["cause"], incident["state"]) == ("memory", "complete")
    took_effect_once(here)


def test_it_survives_a_node_that_dies_with_its_tasks(here: Room) -> None:
    lost = here.host("lost", slots="2")
    with client(here, STEADY) as start:
        run = start()
        running(here, 2)
        cut_power(lost.started.process.pid)
        here.host("other", slots="2")
        run.well()
    assert {(job["attempt"], job["failures"]) for job in jobs(here, "part").values()} == {(2, 0)}
    took_effect_once(here)


@pytest.mark.slow
def test_it_survives_a_lost_heartbeat_and_takes_effect_once(here: Room) -> None:
    lost = here.host("lost", slots="2")
    with client(here, STEADY) as start:
        run = start()
        claimed = running(here, 2)
        os.kill(lost.started.process.pid, signal.SIGSTOP)
        try:
            here.host("other", slots="2")

            def given_away() -> bool:
                return all(job["attempt"] == 2 for key, job in jobs(here).items() if key in claimed)

            until(given_away, "the tasks to be given to another")
        finally:
            os.kill(lost.started.process.pid, signal.SIGCONT)
        run.well()
    took_effect_once(here)


@pytest.mark.slow
def test_it_survives_a_replica_that_is_down_by_another(here: Room) -> None:
    rule(here, "transfer", {"action": "avoid-host"}, {"action": "resubmit"})
    nearest, other = here.folder / "nearest", here.folder / "other"
    with replica(here.folder / "replica") as url, client(here, FETCHING.format(nearest=nearest)) as start:
        nearest.write_text(url)
        other.write_text(f"http://127.0.0.1:{free_port()}")
        here.host("unlucky", slots="2", prepare=f"mount --bind {other} {nearest}")
        run = start()
        until(lambda: here.operator.find_incidents({}).incidents, "the failure")
        here.host("lucky", slots="2")
        run.well()
    assert {(job["attempt"], job["last"]["host"]) for job in jobs(here, "part").values()} == {(2, "lucky")}
    took_effect_once(here)


@pytest.mark.slow
async def test_it_survives_a_server_that_is_away_for_a_minute(tmp_path: Path) -> None:
    async with failure_site(tmp_path, lease=180, free_tries=FREE, tes_containers="host-paths") as site:
        with room(site, failing=True) as here, client(here, STEADY) as start:
            here.host("sound", slots="2")
            run = start()
            running(here, 2)
            site.lose_server()
            began = time.monotonic()
            # The minute is what is proved, not a wait for something.
            until(lambda: time.monotonic() > began + OUTAGE, "the minute", OUTAGE + 10)
            assert run.process.poll() is None, run.said
            site.start_server()
            run.well()
            assert "no answer" in run.said
            assert {(job["attempt"], job["failures"]) for job in jobs(here).values()} == {(1, 0)}, "nothing ran twice"
            took_effect_once(here)
