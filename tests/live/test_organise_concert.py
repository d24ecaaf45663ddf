"""Organise Concert, paper P1's example, as a reader runs it: `forestay dev`, the example's own `set-up`, a real pilot, and what people raise from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from tests.live.laptop import PATIENCE, Laptop, new_laptop

pytestmark = pytest.mark.live

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "organise-concert"
FLOW = str(FOLDER / "organise-concert.yaml")
Found = TypeVar("Found")


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    laptop = new_laptop(tmp_path_factory.mktemp("concert"))
    laptop.start()
    # As a reader does it, with the command that is installed.
    programs = f"{Path(sys.executable).parent}{os.pathsep}{laptop.environment['PATH']}"
    subprocess.run([FOLDER / "set-up"], env=laptop.environment | {"PATH": programs}, check=True, timeout=PATIENCE)
    yield laptop
    laptop.stop()


@pytest.fixture(scope="module")
def ask(laptop: Laptop) -> Iterator[Callable[..., Any]]:
    """What the interface tells of something."""
    (token,) = (laptop.home / "state").glob("**/dev/*token*")
    headers = {"Authorization": f"Bearer {token.read_text().strip()}"}
    with httpx.Client(
        base_url=f"http://127.0.0.1:{laptop.port}", headers=headers, timeout=60, trust_env=False
    ) as client:

        def get(path: str, **params: str) -> Any:
            answer = client.get(path, params=params)
            assert answer.status_code == 200, answer.text
            return answer.json()

        yield get


def until(condition: Callable[[], Found | None], what: str) -> Found:
    give_up = time.monotonic() + PATIENCE
    while not (found_condition := condition()):
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        time.sleep(0.1)
    return found_condition


def organise(laptop: Laptop, **params: object) -> dict[str, Any]:
    """A concert, organised to its end."""
    lines = [f"--param={name}={json.dumps(value)}" for name, value in params.items()]
    run: dict[str, Any] = laptop.json("run", FLOW, *lines, "--timeout", "200")["run"]
    assert run["state"] == "completed"
    return run


def begin(laptop: Laptop, ask: Callable[..., Any], **params: object) -> str:
    """A concert; of one whose doors are closed, tickets are being sold when this returns."""
    lines = [f"--param={name}={json.dumps(value)}" for name, value in params.items()]
    run = str(laptop.json("run", FLOW, *lines, "--detach")["id"])
    if "doors" in params:
        until(lambda: tasks(ask, run).get("sell_tickets") == "running", "tickets to be sold")
    return run


def tasks(ask: Callable[..., Any], run: str) -> dict[str, str]:
    return {task["id"]: task["state"] for task in ask(f"/v1/runs/{run}")["tasks"]}


def ended(ask: Callable[..., Any], run: str) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        fields: dict[str, Any] = ask(f"/v1/runs/{run}")
        return fields if fields.get("ended") else None

    return until(over, "the end of the run")


def incident(ask: Callable[..., Any], run: str, *states: str, name: str = "") -> dict[str, Any]:
    """The newest incident of a run, or the one of this id, whole, as soon as it stands so."""

    def there() -> dict[str, Any] | None:
        incidents = ask("/v1/incidents", run=run)["incidents"]
        for incident in incidents:
            if incident["state"] in states and name in ("", incident["id"]):
                whole: dict[str, Any] = ask(f"/v1/incidents/{incident['id']}")
                return whole
        return None

    return until(there, f"an incident that is {states}")


def did(fields: dict[str, Any]) -> list[str]:
    """The steps that were done by the last decision, without worklets, which are runs."""
    last = fields["decisions"][-1]["n"]
    assert all(step["state"] == "done" for step in fields["steps"])
    return [step["action"] for step in fields["steps"] if step["n"] == last and step["action"] != "compensate"]


def worklets(ask: Callable[..., Any], name: str) -> list[str]:
    """How the runs of a worklet ended, the newest first."""
    return [run["state"] for run in ask("/v1/runs", name=name)["runs"]]


def test_a_concert_that_sells_well_has_no_exception(laptop: Laptop, ask: Callable[..., Any]) -> None:
    run = organise(laptop, demand=38_000)
    assert run["outputs"] == {"venue": "stadium", "seating": 40_000}
    assert ask("/v1/incidents", run=run["id"])["incidents"] == []
    # Three quarters exactly are not fewer than three quarters.
    assert organise(laptop, demand=30_000)["outputs"]["venue"] == "stadium"


@pytest.mark.ledger("P1-32", "P1-17")
@pytest.mark.parametrize(
    ("demand", "playbook", "venue", "seating"),
    [
        (29_999, "change-to-mid-venue", "concert hall", 20_000),
        (20_000, "change-to-mid-venue", "concert hall", 20_000),
        (19_999, "change-to-small-venue", "club", 10_000),
        (8_000, "change-to-small-venue", "club", 10_000),
    ],
)
def test_few_tickets_change_the_venue(
    laptop: Laptop, ask: Callable[..., Any], demand: int, playbook: str, venue: str, seating: int
) -> None:
    before = len(worklets(ask, playbook))
    run = organise(laptop, demand=demand)
    # What the worklet booked is the run's from then on, and the show is there.
    assert run["outputs"] == {"venue": venue, "seating": seating}
    found_incident = incident(ask, run["id"], "complete")
    assert (found_incident["type"], found_incident["task"]) == ("task-pre", "do_show")
    assert found_incident["decisions"][0]["by"].startswith("flow/organise-concert#")
    assert found_incident["decisions"][0]["playbook"]["name"] == playbook
    assert did(found_incident) == ["suspend", "continue"]
    assert worklets(ask, playbook)[: len(worklets(ask, playbook)) - before] == ["completed"]


@pytest.mark.ledger("P1-32")
def test_very_few_tickets_cancel_the_show(laptop: Laptop, ask: Callable[..., Any]) -> None:
    run = begin(laptop, ask, demand=7_999)
    assert ended(ask, run)["state"] == "removed"
    found_incident = incident(ask, run, "complete")
    assert found_incident["decisions"][0]["playbook"]["name"] == "cancel-show"
    assert did(found_incident) == ["suspend", "remove"]
    assert worklets(ask, "cancel-show") == ["completed"]
    assert not {"do_show", "pay_participants"} & {
        name for name, state in tasks(ask, run).items() if state == "completed"
    }


@pytest.mark.ledger("P1-32")
def test_what_happens_outside_is_raised_and_answered_while_the_run_goes_on(
    laptop: Laptop, ask: Callable[..., Any], tmp_path: Path
) -> None:
    doors = tmp_path / "doors"
    run = begin(laptop, ask, demand=38_000, doors=str(doors))
    offered = laptop.json("runs", "raise", run)["triggers"]
    assert {entry["name"] for entry in offered} == {
        "band broken up", "ticket sales better than expected", "band requests backstage refreshments",
    }  # fmt: skip
    # A beneficial one, whose worklet changes the run's data; one that only adds work; and one of a single task.
    for trigger, task in (
        ("ticket sales better than expected", ""),
        ("band requests backstage refreshments", ""),
        ("box office is off line", "sell_tickets"),
    ):
        words = ["--task", task] if task else []
        raised = laptop.json("runs", "raise", run, "--trigger", trigger, *words)
        assert raised["verdict"] == "playbook"
        found_incident = incident(ask, run, "complete", name=raised["incident"])
        assert did(found_incident) == (["suspend", "continue"] if task else [])
    assert [worklets(ask, name) for name in ("open-upper-tier", "refreshments", "sell-at-the-door")] == [
        ["completed"]
    ] * 3
    assert tasks(ask, run)["sell_tickets"] == "running"
    doors.touch()
    assert ended(ask, run)["state"] == "completed"
    assert ask(f"/v1/runs/{run}")["outputs"] == {"venue": "stadium", "seating": 45_000}


@pytest.mark.ledger("P1-32")
def test_a_band_that_breaks_up_and_a_roof_that_leaks(laptop: Laptop, ask: Callable[..., Any], tmp_path: Path) -> None:
    doors = tmp_path / "doors"
    run = begin(laptop, ask, demand=38_000, doors=str(doors))
    # Nobody foresaw it: the run is suspended, and a playbook is written and launched for it.
    raised = laptop.json("runs", "raise", run, "--new", "the roof leaks", "--reason", "cover the stage")
    assert raised["verdict"] == "hold"
    doors.touch()
    laptop.run("inbox", "launch", raised["incident"], str(FOLDER / "cover-the-stage.yaml"))
    assert did(incident(ask, run, "complete", name=raised["incident"])) == ["suspend", "continue"]
    assert worklets(ask, "cover-the-stage") == ["completed"]
    assert ended(ask, run)["outputs"] == {"venue": "stadium", "seating": 40_000}
    other = begin(laptop, ask, demand=38_000, doors=str(tmp_path / "never"))
    raised = laptop.json("runs", "raise", other, "--trigger", "band broken up")
    assert ended(ask, other)["state"] == "removed"
    found_incident = incident(ask, other, "complete", name=raised["incident"])
    assert (found_incident["decisions"][0]["playbook"]["name"], did(found_incident)) == (
        "cancel-show",
        ["suspend", "remove"],
    )
