"""A job that would bring its pilot down. `just faults` runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from tests.system.matrix.room import Room, room
from tests.system.matrix.site import FailureSite, failure_site, until

from forestay.client.api.answers import FINAL
from forestay.client.api.schemas import NewJob, SpecificationJson

pytestmark = [pytest.mark.slow, pytest.mark.pair]

PATIENCE = 180.0


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FailureSite]:
    async with failure_site(tmp_path) as running:
        yield running


def submitted(where: Room, command: list[str], many: int = 1, **more: Any) -> list[str]:
    spec = cast(SpecificationJson, {"name": "poison", "command": command, **more})
    return [accepted_json["id"] for accepted_json in where.client.submit([cast(NewJob, {}) for _ in range(many)], spec)]


def running_in(group: Path) -> set[str]:
    """The processes of a control group."""
    return set((group / "cgroup.procs").read_text().split())


def at_the_end(where: Room, job: str) -> Any:
    """The job when it has ended."""
    until(lambda: where.operator.job(job)["state"] in FINAL, "its end", PATIENCE)
    return where.operator.job(job)


async def test_a_fork_bomb_ends_with_its_job_and_its_pilot_goes_on(site: FailureSite) -> None:
    """On a host that has only so many processes: a batch system's limit, by a control group."""

    def scenario() -> None:
        first, second = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")
        group = (first if first.is_dir() else second) / f"forestay-{uuid4().hex[:8]}"
        group.mkdir()
        site.groups.append(group)
        (group / "pids.max").write_text("200")
        with room(site, failing=False) as where:
            host = where.host("bombed", group=group)
            quiet = running_in(group)
            for _ in range(3):
                (bomb,) = submitted(where, ["sh", "-c", "f() { f | f & }; f; sleep 600"], resources={"wall": 3})
                ended = at_the_end(where, bomb)
                assert (ended["state"], ended["attempt"], ended["releases"]) == ("failed", 1, 0), ended["last"]
                until(lambda: running_in(group) <= quiet, "its processes to be gone")
                (honest,) = submitted(where, ["true"])
                assert at_the_end(where, honest)["state"] == "completed"
            assert host.started.process.poll() is None

    await asyncio.to_thread(scenario)
