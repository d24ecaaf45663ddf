"""A site agent on a real HTCondor: pilots come for queued jobs, run them and go; one that is held is over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests import servers
from tests.live.test_site_agent import PATIENCE, SETTINGS
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.private_file import write_private
from forestay.adapters.system.commands import SystemCommands

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.mark.ledger("P3-05")
@pytest.mark.finding("F-F3")
async def test_pilots_come_for_queued_jobs_run_them_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{servers.htcondor()}:{os.environ['PATH']}")
    async with store_room("sqlite", tmp_path) as url:
        domain = Domain(url, tmp_path)
        write_private(tmp_path / "token", domain.token("site", tenant="here"))
        async with processes(domain, tmp_path, lease=30) as running:
            server = await running.server()
            running.reconciler()
            user = running.client(server, "operator", tenant="here")
            site = running.client(server, "site", tenant="here")
            limits = 'max_pilots = 3\nbatch = "htcondor"'
            text = SETTINGS.format(server=server.url, folder=tmp_path, limits=limits, idle_exit=2)
            # The nodes have a Python of their own.
            (tmp_path / "site.toml").write_text(text.replace("[pilot]", '[pilot]\npython = "/usr/bin/python3"'))
            running._start("site", "--config", str(tmp_path / "site.toml"))
            jobs = await submit(user, *[{}] * 6, command=["sh", "-c", "sleep 1; hostname >name"], outputs=["name"])

            async def done() -> bool:
                states = [(await user.get(f"/v1/jobs/{job}")).json()["state"] for job in jobs]
                assert "failed" not in states
                return set(states) == {"completed"}

            await until(done, "all jobs to end", PATIENCE)

            async def gone() -> list[dict[str, Any]]:
                if (await site.get("/v1/sites/hall/launches")).json()["launches"]:
                    return []
                found: list[dict[str, Any]] = (await site.get("/v1/sites/hall/launches?state=ended")).json()["launches"]
                return found

            launches = await until(gone, "the pilots to leave", PATIENCE)
            names = {launch["name"] for launch in launches}
            assert 1 <= len(names) <= 6
            wanted = ",".join(f'"{name}"' for name in names)
            which = ["-constraint", f"member(JobBatchName, {{{wanted}}})"]
            asked = [
                "condor_history",
                "-json",
                "-attributes",
                "JobBatchName,NumJobStarts,RequestCpus,RequestMemory",
                *which,
            ]
            history = await SystemCommands().run(asked)
            jobs = json.loads(history.out)
            assert sorted(each["JobBatchName"] for each in jobs) == sorted(names), "each launch was one job"
            assert {(each["NumJobStarts"], each["RequestCpus"], each["RequestMemory"]) for each in jobs} == {
                (1, 2, 200)
            }
