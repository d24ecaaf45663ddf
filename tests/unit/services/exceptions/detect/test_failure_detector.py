"""An incident keeps what was known when its failure was decided on, so that a replay decides by the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from tests.unit.services.exceptions.building import sql_stores
from tests.unit.services.exceptions.test_failures import IS_MEMORY, LOST_NODE, MORE_MEMORY, OOM, Desk

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.exceptions.incidents.incident import Incident, IncidentState
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, FlowRef, State, Token
from forestay.domain.jobs.resources import Resources
from forestay.domain.rules.context import Context, read_context, told_by
from forestay.domain.scheduling.host_health import HostHealth, HostStatus, as_plain
from forestay.ports.documents import Document
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.ports.jobs.job_store import DocumentChange, Stored, Written
from forestay.services.rules.rule_store import RuleCache, RuleStore

NEEDS = Resources(cpus=1, memory=1 << 30)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'failures.db'}")
    await store.open()
    yield Desk(sql_stores(store))
    await store.close()


async def incident_at(desk: Desk, job: str, attempt: int) -> Incident:
    statuses = (await desk.incidents.find(IncidentQuery(job=job))).statuses
    known = await desk.incidents.get_incidents([stored.status.id for stored in statuses])
    (incident,) = [incident for incident in known.values() if incident.attempt == attempt]
    return incident


def _attempts(context: Context) -> list[dict[str, object]]:
    return cast("list[dict[str, object]]", context["attempts"])


async def fail_again(desk: Desk, name: str, attempt: int, host: str) -> Stored:
    stored = (await desk.store.get([name]))[name]
    last = AttemptResult(Token(0, attempt), f"claim-{attempt}", AttemptOutcome.FAILURE, exit_code=9, host=host)
    document = stored.document.having(state=State.FAULTED, attempt=attempt, last=last)
    (result,) = await desk.store.write([DocumentChange(document, stored.version)])
    assert isinstance(result, Written)
    return Stored(document, result.version)


@pytest.mark.finding("F-D7")
async def test_a_failure_knows_its_earlier_attempts_and_the_failures_of_the_last_hour(desk: Desk) -> None:
    await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    for other in ("two", "three"):
        await desk.handler().handle_failures([(await desk.put(other, resources=NEEDS), OOM)])
    flow_ref = FlowRef("run-1", "align@2", "f" * 64, 0, 0, 1, above=("run-0",))
    await desk.handler().handle_failures([(await desk.put("one", resources=NEEDS, flow_ref=flow_ref), OOM)])
    closed = as_plain({"n18": HostHealth("n18", HostStatus.CLOSED)})
    await desk.stores.documents.put([(Document("hosts:lab", "lab", "hosts", closed), None)])
    await desk.handler().handle_failures([(await fail_again(desk, "one", 2, "n18"), OOM)])
    await desk.handler().handle_failures([(await fail_again(desk, "one", 3, "n17"), LOST_NODE)])
    second, wrong = read_context(told_by(await incident_at(desk, "one", 2)))
    assert wrong == ()
    ((attempt, before),) = [(failed["attempt"], failed) for failed in _attempts(second)]
    assert attempt == 1
    assert {name: before[name] for name in ("cause", "host", "exit_code")} == {
        "cause": "memory",
        "host": "n17",
        "exit_code": 1,
    }
    assert (second["history.same_cause"], second["history.same_host"]) == (1, 0)
    assert (second["history.cause_1h"], second["history.owner_1h"], second["history.flow_1h"]) == (3, 3, 1)
    assert (second["host.name"], second["host.closed"]) == ("n18", True)
    assert (second["run.id"], second["run.depth"]) == ("run-1", 1)
    assert (second["task.name"], second["task.round"], second["exception.task"]) == ("align", 2, "align")
    third, _ = read_context(told_by(await incident_at(desk, "one", 3)))
    assert [failed["host"] for failed in _attempts(third)] == ["n17", "n18"]
    assert (third["history.same_cause"], third["history.same_host"], third["host.closed"]) == (0, 1, False)


@pytest.mark.finding("F-D7")
async def test_a_rule_about_history_acts_and_a_later_replay_of_the_incident_decides_the_same(desk: Desk) -> None:
    await desk.add_rule(
        'cause == "memory" && history.owner_1h >= 2', {"action": "hold", "target": "job", "reason": "look"}
    )
    for name in ("one", "two", "three"):
        await desk.handler().handle_failures([(await desk.put(name, resources=NEEDS), OOM)])
    held = {name: (await desk.status(name))[0] for name in ("one", "two", "three")}
    assert held["three"] is IncidentState.HELD
    rules = RuleCache(RuleStore(desk.stores.documents), CelConditions())
    await rules.refresh()
    for name in ("one", "two", "three"):
        incident = await incident_at(desk, name, 1)
        context, _ = read_context(told_by(incident))
        replayed = rules.decide("lab", "", incident.kind, "", context).active
        (decision,) = await desk.incidents.decisions(incident.id)
        assert bool(replayed.by) == (decision.verdict == "playbook"), name
