"""A real Grafana takes our files as they are, and every panel asks a real Prometheus for figures of real processes. Only its pages are not there."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.servers import SCRIPT, installed, versions
from tests.system.chaos.processes import free_port, launch
from tests.system.deploy.watched import BOARD, RULES, prometheus, scraping
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until

PROVISIONING = BOARD.parent / "provisioning"
SOURCE = "forestay-prometheus"
TENANT = "physics"

pytestmark = [pytest.mark.slow, pytest.mark.pair]


def program() -> Path:
    """The folder that `scripts/servers install grafana` makes."""
    folder = installed(f"grafana-{versions()['GRAFANA_MODULE_VERSION'].rpartition('-')[2]}", "grafana")
    if folder is None:
        pytest.fail(f"Grafana is not here: {SCRIPT} install grafana", pytrace=False)
    return folder


@asynccontextmanager
async def grafana(folder: Path, source: str) -> AsyncIterator[httpx.AsyncClient]:
    """One that was told nothing but what docs/how-to/monitoring.md tells; asked as its administrator."""
    home, port, password = program(), free_port(), secrets.token_hex(8)
    boards = folder / "boards"
    boards.mkdir()
    shutil.copy(BOARD, boards)
    environment = os.environ | {
        "PROMETHEUS_URL": source,
        "DASHBOARDS_FOLDER": str(boards),
        "GF_PATHS_DATA": str(folder / "grafana"),
        "GF_PATHS_LOGS": str(folder / "grafana-logs"),
        "GF_PATHS_PROVISIONING": str(PROVISIONING),
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_SECURITY_ADMIN_PASSWORD": password,
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
    }
    process = launch([str(home / "grafana"), "server", "--homepath", str(home)], folder / "grafana.log", environment=environment)  # fmt: skip
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", auth=("admin", password)) as web:

            async def answers() -> bool:
                assert process.poll() is None, (folder / "grafana.log").read_text()[-2000:]
                try:
                    return bool((await web.get("/api/health")).json()["database"] == "ok")
                except (httpx.TransportError, ValueError, KeyError):
                    return False

            await until(answers, "Grafana", 120)
            yield web
    finally:
        process.kill()
        process.wait()


def queries(board: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What Grafana's page would ask for each panel, with the source chosen."""
    for panel in board["panels"]:
        if panel.get("targets"):
            yield (
                panel["title"],
                [
                    target
                    | {"datasource": {"type": "prometheus", "uid": SOURCE}, "intervalMs": 1000, "maxDataPoints": 300}
                    | ({} if panel["type"] == "stat" else {"range": True})
                    for target in panel["targets"]
                ],
            )


@pytest.mark.ledger("P4-15")
async def test_a_real_grafana_shows_what_a_real_prometheus_has_of_real_work(tmp_path: Path) -> None:
    domain = Domain(f"sqlite:///{tmp_path}/forestay.db", tmp_path)
    async with processes(domain, tmp_path) as running:
        server, port = await running.server(), free_port()
        running.reconciler(metrics_port=port)
        running.pilot(TENANT, server)
        ada = running.client(server, "submitter", tenant=TENANT)
        await submit(ada, {}, command=["true"])
        await submit(ada, {}, command=["false"], max_attempts=1, when_exhausted="hold")
        targets = {"server": server.url.removeprefix("http://"), "reconciler": f"127.0.0.1:{port}"}
        scraping(tmp_path, domain, RULES.read_text(), **targets)
        async with prometheus(tmp_path) as source, grafana(tmp_path, source) as web:
            health = (await web.get(f"/api/datasources/uid/{SOURCE}/health")).json()
            assert health["status"] == "OK", health
            response = await web.get("/api/dashboards/uid/forestay")
            assert response.status_code == 200, response.text
            board = response.json()["dashboard"]
            assert response.json()["meta"]["provisioned"]
            assert len(board["panels"]) == len(json.loads(BOARD.read_text())["panels"])

            async def empty() -> set[str]:
                """The panels that have nothing to show yet."""
                titles = set()
                for title, asked in queries(board):
                    answer = await web.post("/api/ds/query", json={"queries": asked, "from": "now-5m", "to": "now"})
                    assert answer.status_code == 200, (title, answer.text)
                    frames = [frame for result in answer.json()["results"].values() for frame in result["frames"]]
                    if not any(frame["data"]["values"] for frame in frames):
                        titles.add(title)
                return titles

            async def all_shown() -> bool:
                return not await empty()

            try:
                await until(all_shown, "every panel to show something", 120)
            except AssertionError as error:
                raise AssertionError(f"empty panels: {await empty()}") from error
