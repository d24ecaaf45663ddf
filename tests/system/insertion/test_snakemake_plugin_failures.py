"""The unmodified Snakefile by the real Snakemake and our plugin, on pilots that lose their memory, their host, their heartbeat, a file, and the server: it ends well, and no retry of the user's is spent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
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
    family,
    jobs,
    rule,
    running,
    took_effect_once,
)
from tests.system.insertion.programs import greedy
from tests.system.insertion.shell import MORE
from tests.system.insertion.snakemake_room import FlowFolder, snakemake
from tests.system.matrix.room import Room, room
from tests.system.matrix.site import FailureSite, Host, failure_site, until
from tests.unit.pilot.process.test_isolation import memory_group

__all__ = ["snakemake"]
pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.ledger("P0-22")]


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FailureSite]:
    """With the default policy's own free tries, and a short lease, so that a lost heartbeat is found soon."""
    async with failure_site(tmp_path_factory.mktemp("site"), lease=LEASE, free_tries="0,60,600,3600") as running:
        yield running


@pytest.fixture(scope="module")
async def patient_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FailureSite]:
    """With a lease that outlives the outage, as the usual one of ten minutes does."""
    async with failure_site(tmp_path_factory.mktemp("patient"), lease=180, free_tries="0,60,600,3600") as running:
        yield running


@pytest.fixture
def here(site: FailureSite) -> Iterator[Room]:
    with room(site, failing=True) as made:
        yield made


def flow_in(here: Room, snakemake: Path) -> FlowFolder:
    folder = here.folder / "flow"
    folder.mkdir()
    token = here.site.running.domain.token("submitter", tenant=here.tenant)
    flow = FlowFolder(snakemake, folder, here.site.server.url, token)
    flow.holds()
    flow.calls(STEADY)
    here.closing.callback(flow.close)
    return flow


@pytest.fixture
def flow(here: Room, snakemake: Path) -> FlowFolder:
    return flow_in(here, snakemake)


def payloads(host: Host) -> list[int]:
    """The processes of a host's jobs: Snakemake for one rule each."""

    def there() -> list[int]:
        return [pid for pid in family(host.started.process.pid) if b"--target-jobs" in _words(pid)]

    payloads: list[int] = until(there, "the payloads")
    return payloads


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def lives(pid: int) -> bool:
    """A zombie does nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_it_survives_jobs_that_are_killed_for_their_memory(here: Room, flow: FlowFolder) -> None:
    group = memory_group()
    if not group:
        pytest.skip("this process may make no control groups")
    rule(here, "memory", MORE)
    flow.calls(greedy())
    here.host(slots="2", cgroup=group)
    run = flow.run()
    flow.well(run)
    for job in jobs(here, "part").values():
        assert (job["attempt"], job["resources"]["memory"]) == (2, 1_200_000_000)
        (incident,) = here.operator.find_incidents({"job": job["id"]}).incidents
        assert (incident["cause"], incident["state"]) == ("memory", "complete")
    took_effect_once(here)


def test_it_survives_a_node_that_dies_with_its_jobs(here: Room, flow: FlowFolder) -> None:
    lost = here.host("lost", slots="2")
    run = flow.start()
    running(here, 2)
    payloads(lost)
    cut_power(lost.started.process.pid)
    here.host("other", slots="2")
    run.ended()
    flow.well(run)
    for job in jobs(here, "part").values():
        assert (job["attempt"], job["releases"], job["failures"]) == (2, 1, 0)
    took_effect_once(here)


@pytest.mark.slow
def test_it_survives_a_lost_heartbeat_and_no_two_runs_of_a_job_overlap(here: Room, flow: FlowFolder) -> None:
    lost = here.host("lost", slots="2")
    run = flow.start()
    claimed = running(here, 2)
    first = payloads(lost)
    os.kill(lost.started.process.pid, signal.SIGSTOP)
    try:
        here.host("other", slots="2")

        def given_away() -> bool:
            return all(job["attempt"] == 2 for key, job in jobs(here).items() if key in claimed)

        until(given_away, "the jobs to be given to another")
        assert not any(lives(pid) for pid in first), "a lease that passed ends what writes into the flow's folder"
    finally:
        os.kill(lost.started.process.pid, signal.SIGCONT)
    run.ended()
    flow.well(run)
    took_effect_once(here)


@pytest.mark.slow
def test_it_survives_a_replica_that_is_down_by_another(here: Room, flow: FlowFolder) -> None:
    """The program fetches its input from the replica next to its host; nobody listens where the first host's should be."""
    rule(here, "transfer", {"action": "avoid-host"}, {"action": "resubmit"})
    nearest, other = flow.folder / "nearest", flow.folder / "other"
    flow.calls(FETCHING.format(nearest=nearest))
    with replica(flow.folder / "replica") as url:
        nearest.write_text(url)
        other.write_text(f"http://127.0.0.1:{free_port()}")
        here.host("unlucky", slots="2", prepare=f"mount --bind {other} {nearest}")
        run = flow.start()
        until(lambda: here.operator.find_incidents({}).incidents, "the failure")
        here.host("lucky", slots="2")
        run.ended()
    flow.well(run)
    for job in jobs(here, "part").values():
        assert (job["attempt"], job["last"]["host"]) == (2, "lucky")
        (incident,) = here.operator.find_incidents({"job": job["id"]}).incidents
        assert incident["state"] == "complete"
        assert incident["cause"] in ("transfer", "network")
    took_effect_once(here)


@pytest.mark.slow
def test_it_survives_a_server_that_is_away_for_a_minute(patient_site: FailureSite, snakemake: Path) -> None:
    with room(patient_site, failing=True) as here:
        flow = flow_in(here, snakemake)
        here.host("sound", slots="2")
        run = flow.start()
        claimed = running(here, 2)
        patient_site.lose_server()
        began = time.monotonic()
        # The minute is what is proved, not a wait for something; the jobs end in it, and cannot tell anyone.
        until(lambda: time.monotonic() > began + OUTAGE, "the minute", OUTAGE + 10)
        assert run.process.poll() is None, run.said
        patient_site.start_server()
        run.ended()
        flow.well(run)
        assert run.said.count("Forestay does not say how the jobs stand") == 1
        assert "Forestay answers again." in run.said
        assert {(job["attempt"], job["failures"]) for job in jobs(here).values()} == {(1, 0)}, "nothing ran twice"
        assert claimed.keys() <= jobs(here).keys()
        took_effect_once(here)
