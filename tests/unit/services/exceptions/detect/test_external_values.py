"""Rules may ask external sources; one that does not answer as declared is missing, and the walk ends there."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.unit.services.exceptions.building import sql_stores
from tests.unit.services.exceptions.test_failures import MORE_MEMORY, OOM, Desk

from forestay.adapters.httpx.external_source import WebSource
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import SystemClock
from forestay.adapters.system.external_source import CommandSource, FileSource
from forestay.apps.config.settings import Settings
from forestay.domain.exceptions.incidents.incident import IncidentState
from forestay.domain.jobs.resources import Resources
from forestay.domain.rules.context import FieldType
from forestay.ports.exceptions.external_source import ExternalSource
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.services.exceptions.detect import external_values
from forestay.services.exceptions.detect.external_values import ExternalValues, RegisteredSource

FIELDS = {"left": FieldType.INT, "open": FieldType.TRUTH, "load": FieldType.NUMBER, "who": FieldType.TEXT}
TOLD = {"left": 7, "open": True, "load": 1, "who": "ada", "else": {"not": "declared"}}
READ = {"left": 7, "open": True, "load": 1.0, "who": "ada"}


def values_of(source: ExternalSource, fields: Mapping[str, FieldType] = FIELDS, fresh: float = 60.0) -> ExternalValues:
    reports: list[str] = []
    return ExternalValues([RegisteredSource("quota", source, fields, fresh)], SystemClock(), reports.append)


@pytest.fixture
async def told_by_web() -> AsyncIterator[tuple[str, dict[str, Any]]]:
    answer: dict[str, Any] = {"text": json.dumps(TOLD), "status": 200, "tokens": []}

    async def get(request: web.Request) -> web.Response:
        answer["tokens"].append(request.headers.get("Authorization"))
        return web.Response(text=answer["text"], status=answer["status"])

    app = web.Application()
    app.router.add_get("/quota", get)
    async with TestServer(app) as server:
        yield f"http://127.0.0.1:{server.port}/quota", answer


async def test_a_file_a_command_and_an_address_tell_what_is_declared(
    tmp_path: Path, told_by_web: tuple[str, dict[str, Any]]
) -> None:
    file = tmp_path / "quota.json"
    file.write_text(json.dumps(TOLD))
    command = [sys.executable, "-c", f"print({json.dumps(json.dumps(TOLD))})"]
    url, answer = told_by_web
    for source in (FileSource(file), CommandSource(command, "/usr/bin"), WebSource(url, lambda: "secret")):
        assert await values_of(source).values() == {"quota": READ}
    assert answer["tokens"] == ["Bearer secret"]


@pytest.mark.parametrize(
    "text", ["", "no json", "[1]", '{"left": "7"}', '{"left": true}', "{}", '{"left": 7.5}', '{"left": ' + "1" * 70_000]
)
async def test_what_is_not_as_declared_is_missing(
    text: str, tmp_path: Path, told_by_web: tuple[str, dict[str, Any]]
) -> None:
    url, answer = told_by_web
    answer["text"] = text
    file = tmp_path / "quota.json"
    file.write_text(text)
    for source in (FileSource(file), WebSource(url), CommandSource(["cat", str(file)], "/usr/bin:/bin")):
        assert await values_of(source, {"left": FieldType.INT}).values() == {}


async def test_who_cannot_answer_is_missing(tmp_path: Path, told_by_web: tuple[str, dict[str, Any]]) -> None:
    url, answer = told_by_web
    answer["status"] = 500
    gone = (FileSource(tmp_path / "none"), WebSource(url), CommandSource(["false"], "/usr/bin:/bin"))
    for source in (*gone, CommandSource([str(tmp_path / "no-such-program")], "")):
        assert await values_of(source).values() == {}


async def test_a_source_is_not_waited_for_and_one_that_failed_not_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_values, "PATIENCE", 0.2)
    asked = tmp_path / "asked"
    values = values_of(CommandSource(["sh", "-c", f"echo >> {asked}; sleep 60"], "/usr/bin:/bin"))
    assert await values.values() == {}
    assert await values.values() == {}
    assert asked.read_text() == "\n"


async def test_values_are_used_again_while_they_are_fresh(tmp_path: Path) -> None:
    file = tmp_path / "quota.json"
    file.write_text('{"left": 1}')
    fresh, stale = (values_of(FileSource(file), {"left": FieldType.INT}, seconds) for seconds in (60.0, 0.0))
    for values in (fresh, stale):
        assert await values.values() == {"quota": {"left": 1}}
    file.write_text('{"left": 2}')
    assert await fresh.values() == {"quota": {"left": 1}}
    assert await stale.values() == {"quota": {"left": 2}}


@pytest.mark.ledger("P1-24")
@pytest.mark.finding("F-D7")
@pytest.mark.parametrize("text", ['{"left": 7}', '{"left": 3}', "gone"])
async def test_a_rule_about_an_external_source_acts_or_asks_a_person(text: str, tmp_path: Path) -> None:
    file = tmp_path / "quota.json"
    file.write_text(text)
    store = SqlJobStore(f"sqlite:///{tmp_path / 'failures.db'}")
    await store.open()
    desk = Desk(sql_stores(store))
    await desk.add_rule('cause == "memory" && external.quota.left > 5', MORE_MEMORY)
    pipeline = desk.handler()
    pipeline.detector.history.external = values_of(FileSource(file), {"left": FieldType.INT})
    stored = await desk.put("one", resources=Resources(cpus=1, memory=1 << 30))
    await pipeline.handle_failures([(stored, OOM)])
    (status,) = (await desk.incidents.find(IncidentQuery(job=stored.document.id))).statuses
    decision = await desk.incidents.get_decision(status.status.id, 1)
    assert decision is not None
    if text == "gone":
        assert status.status.state is IncidentState.HELD
        assert "quota" in json.dumps(decision.detail)
    else:
        assert (decision.playbook is not None) is (text == '{"left": 7}')
    await store.close()


def test_the_settings_are_checked() -> None:
    good = {"name": "quota", "file": "/etc/quota.json", "fields": {"left": "int"}}
    assert Settings.model_validate({"external_sources": [good]}).external_sources[0].fresh == 60
    for wrong in (
        good | {"url": "https://x"},
        {"name": "quota", "fields": {"left": "int"}},
        good | {"secret": "env:TOKEN"},
        good | {"name": "raised"},
        good | {"name": "No Name"},
        good | {"fields": {}},
        good | {"fields": {"left": "list"}},
    ):
        with pytest.raises(ValueError, match="external_sources"):
            Settings.model_validate({"external_sources": [wrong]})
    with pytest.raises(ValueError, match="several external sources"):
        Settings.model_validate({"external_sources": [good, good]})
