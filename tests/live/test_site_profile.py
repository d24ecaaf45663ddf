"""The site profile: Temporal's server proper and the jobs on one PostgreSQL, all processes apart, and a flow that is recovered on it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from tests.live.own_temporal import temporal_on_postgres
from tests.live.run_site import new_namespace
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay.apps.doctor import examine

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.pair]

TENANT = "physics"
FLOW = """\
forestay: 1
name: reads
tasks:
  align:
    scatter: {sample: [a, b, c]}
    run: |
      if [ "${sample}" = b ] && [ "$FORESTAY_ATTEMPT" = 1 ]; then echo "quux: all 5 seats are taken"; exit 7; fi
      echo "aligned ${sample}"
    when_exhausted: hold
  report: {after: align, run: echo "all aligned"}
"""
CONDITION = 'evidence.log_tail.exists(line, line.contains("seats are taken"))'


@pytest.fixture
def temporal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with temporal_on_postgres(tmp_path) as address:
        monkeypatch.setenv("FORESTAY_TEST_TEMPORAL", address)
        yield address


async def answers(address: str) -> None:
    async def there() -> bool:
        try:
            client = await Client.connect(address)
            return bool(await client.service_client.check_health())
        except RuntimeError:
            return False

    await until(there, "Temporal's server", 180)


async def test_a_flow_is_recovered_on_it(temporal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await answers(temporal)
    known = {
        "temporal": temporal,
        "temporal_namespace": await new_namespace(),
        "relay_patience": 1,
        "approvals": "off",
    }
    async with store_room("postgresql", tmp_path) as url:
        domain = Domain(url, tmp_path / "state")
        async with processes(domain, tmp_path, lease=60, **known) as started:
            server = await started.server()
            started.reconciler()
            started.orchestrator()
            started.pilot(TENANT, server, slots=2)
            token = domain.token("administrator", tenant=TENANT)
            (tmp_path / "reads.yaml").write_text(FLOW)

            async def forestay(*words: str) -> str:
                own = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
                known = own | {"FORESTAY_SERVER": server.url, "FORESTAY_TOKEN": token}
                done = await asyncio.to_thread(
                    subprocess.run,
                    [sys.executable, "-m", "forestay", *words],
                    env=known,
                    cwd=tmp_path,
                    capture_output=True,
                    text=True,
                    timeout=300,
                )
                assert done.returncode == 0, (words, done.stdout, done.stderr)
                return str(done.stdout).strip()

            run = await forestay("run", "--detach", "reads.yaml")
            await forestay("inbox", "--wait")
            assert "seats are taken" in await forestay("explain")
            rule = await forestay(
                "rules", "add", "--from", "newest", "--if", CONDITION, "--then", "{action: resubmit, wait: 1 s}"
            )
            await forestay("rules", "promote", rule)
            await forestay("watch", run)
            # The next one needs nobody.
            await forestay("run", "reads.yaml")

            # And the doctor finds it in order, on one PostgreSQL.
            for name in [value for value in os.environ if value.startswith("FORESTAY_")]:
                monkeypatch.delenv(name)
            fields = {**known, "store": url, "state": domain.state, "server": server.url, "token": token}
            for name, value in fields.items():
                if name not in ("relay_patience", "approvals"):
                    monkeypatch.setenv(f"FORESTAY_{name.upper()}", str(value))
            results = {result.about: result for result in await asyncio.to_thread(lambda: list(examine(None)))}
            for name in ("store", "reconcilers", "temporal", "orchestrators", "pilots", "runs"):
                assert results[name].state == "good", results[name]
            assert results["temporal"].words.endswith(f"answers at {temporal}, namespace {known['temporal_namespace']}")
