"""Alert rules and the dashboard: they hold together, they speak of figures that exist, and a real Prometheus reads those and raises the alarm."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.system.chaos.processes import free_port
from tests.system.deploy.watched import BOARD, ROOT, RULES, prometheus, scraping
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until

TESTS = ROOT / "deploy/prometheus/forestay.rules.test.yaml"
RUNBOOK = ROOT / "docs/how-to/monitoring.md"
TENANT = "watched"
NAME = re.compile(r"\bforestay_[a-z0-9_]+|\b(?:domain|route):[a-z0-9_:]+")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: scripts/servers install prometheus"
)


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def board() -> Iterator[str]:
    for panel in json.loads(BOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def shown_names() -> set[str]:
    """Every figure that the code can show, read from the code: a renamed one must not leave an alert that never fires."""
    text = "".join(path.read_text() for path in (ROOT / "src/forestay").rglob("*.py"))
    return set(re.findall(r'"(forestay_[a-z0-9_]+)"', text))


def test_alerts_and_panels_speak_of_figures_that_exist() -> None:
    known = shown_names() | {rule["record"] for rule in rules() if "record" in rule}
    known |= {f"{name}_{part}" for name in known for part in ("bucket", "count", "sum")}
    asked = {name for text in [*(rule["expr"] for rule in rules()), *board()] for name in NAME.findall(text)}
    assert len(asked) > 15
    assert asked - known == set()


def test_each_alert_has_its_words_its_page_and_its_test() -> None:
    headings = {line[4:].strip().lower() for line in RUNBOOK.read_text().splitlines() if line.startswith("### ")}
    tested = {
        entry["alertname"]
        for test in yaml.safe_load(TESTS.read_text())["tests"]
        for entry in test["alert_rule_test"]
        if entry["exp_alerts"]
    }
    alerts = [rule for rule in rules() if "alert" in rule]
    for alert in alerts:
        assert alert["labels"]["severity"] in ("critical", "warning", "info"), alert["alert"]
        assert {"summary", "description", "runbook_url"} <= alert["annotations"].keys(), alert["alert"]
        assert alert["annotations"]["runbook_url"].rpartition("#")[2] in headings, alert["alert"]
    assert {alert["alert"] for alert in alerts} == tested
    assert {alert["alert"].lower() for alert in alerts} == headings


@needs_promtool
def test_promtool_agrees(tmp_path: Path) -> None:
    subprocess.run(["promtool", "check", "rules", RULES], check=True, capture_output=True)
    done = subprocess.run(["promtool", "test", "rules", TESTS.name], cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    panels = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(board())]
    written = tmp_path / "panels.yaml"
    written.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": panels}]}))
    subprocess.run(["promtool", "check", "rules", written], check=True, capture_output=True)


@needs_promtool
def test_the_tests_of_the_rules_can_fail(tmp_path: Path) -> None:
    (tmp_path / RULES.name).write_text(RULES.read_text().replace("> 86400", "> 864000"))
    (tmp_path / TESTS.name).write_text(TESTS.read_text())
    done = subprocess.run(["promtool", "test", "rules", TESTS.name], cwd=tmp_path, capture_output=True, text=True)
    assert "ForestayInboxWaits" in done.stdout + done.stderr
    assert done.returncode != 0


@needs_promtool
@pytest.mark.ledger("P4-09", "P4-15")
async def test_a_real_prometheus_reads_server_and_reconciler_and_tells_of_a_dead_server(
    tmp_path: Path,
) -> None:
    own_domain = Domain(f"sqlite:///{tmp_path}/forestay.db", tmp_path)
    async with processes(own_domain, tmp_path) as running, httpx.AsyncClient() as web:
        server = await running.server()
        port = free_port()
        reconciler = running.reconciler(metrics_port=port)

        async def asked(**headers: str) -> int:
            try:
                return (await web.get(f"http://127.0.0.1:{port}/metrics", headers=headers)).status_code
            except httpx.TransportError:
                return 0

        await until(asked, "the reconciler's door")
        assert await asked() == await asked(authorization="Bearer no") == 401
        assert await asked(authorization=f"Bearer {own_domain.token('enrol', tenant='watchers')}") == 403
        # The same rules, only sooner.
        sooner = RULES.read_text().replace("for: 2m", "for: 1s")
        targets = {"server": server.url.removeprefix("http://"), "reconciler": f"127.0.0.1:{port}"}
        scraping(tmp_path, own_domain, sooner, **targets)
        async with prometheus(tmp_path) as url:

            async def found(query: str) -> list[dict[str, Any]]:
                try:
                    answer = await web.get(f"{url}/api/v1/query", params={"query": query})
                except httpx.TransportError:
                    return []
                return list(answer.json()["data"]["result"]) if answer.status_code == 200 else []

            await until(lambda: found('up{job="forestay-server"} == 1'), "Prometheus to read the server")
            await until(lambda: found('forestay_jobs{state="available"}'), "the domain's figures from the reconciler")
            await until(lambda: found("domain:forestay_jobs:max"), "the recorded figures")
            assert not await found('ALERTS{alertname="ForestayServerDown", alertstate="firing"}')
            # Work, so that there is something to show: a job that goes well and one that waits for a person.
            running.pilot(TENANT, server)
            ada = running.client(server, "submitter", tenant=TENANT)
            await submit(ada, {}, command=["true"])
            await submit(ada, {}, command=["false"], max_attempts=1, when_exhausted="hold")

            async def shown() -> set[str]:
                """Panels that would be empty. Grafana asks so: a range up to now, begun and ended at whole steps."""
                end = int(time.time())
                span = {"start": end - 300, "end": end, "step": 1}
                asked = [
                    (text, await web.post(f"{url}/api/v1/query_range", data={"query": text, **span}))
                    for text in board()
                ]
                assert {answer.status_code for _, answer in asked} == {200}, [answer.text for _, answer in asked]
                return {text for text, answer in asked if not answer.json()["data"]["result"]}

            async def all_shown() -> bool:
                return not await shown()

            try:
                await until(all_shown, "every panel to show something")
            except AssertionError as error:
                raise AssertionError(f"empty panels: {await shown()}") from error
            server.kill()
            await until(
                lambda: found('ALERTS{alertname="ForestayServerDown", alertstate="firing"}'),
                "the alarm of the dead server",
            )
            assert not await found('ALERTS{alertname="ForestayReconcilerMissing", alertstate="firing"}')
        reconciler.kill()
