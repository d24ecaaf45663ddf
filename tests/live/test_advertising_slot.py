"""The approval of an advertising slot, paper P2's example, as a reader runs it: `forestay dev` with the example's settings, a real pilot, real waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.laptop import Laptop, new_laptop

pytestmark = pytest.mark.live

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "advertising-slot"
REQUESTED, APPROVED, GRANTED = (
    "front-page is requested",
    "the administrator approves front-page",
    "front-page is approved",
)
TAKEN_BACK, WITHDRAWN = (
    "the administrator's approval of front-page is taken back",
    "the request for front-page is withdrawn",
)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    laptop = new_laptop(tmp_path_factory.mktemp("slots"))
    laptop.settings["FORESTAY_CONFIG"] = str(FOLDER / "forestay.toml")
    laptop.start()
    yield laptop
    laptop.stop()


def approve(
    laptop: Laptop, system: Path, *, good: bool = True, **params: str
) -> tuple[list[str], dict[str, list[str]]]:
    """Run the flow to its end; the journal, and for each task what retry_policies did to its job."""
    given_lines = [f"--param={name}={json.dumps(value)}" for name, value in (params | {"system": str(system)}).items()]
    words = ["run", str(FOLDER / "advertising-slot.yaml"), *given_lines, "--timeout", "200", "--json"]
    run = json.loads(laptop.run(*words, code=0 if good else 8))["run"]
    assert run["state"] == ("completed" if good else "failed")
    fields: dict[str, list[str]] = {}
    for job in laptop.json("jobs", "--run", run["id"], "--all")["jobs"]:
        lines = laptop.json("story", job["id"])["story"]
        fields[job["name"]] = [
            str(line["note"]).partition("; incident")[0] for line in lines if str(line["by"]).startswith("playbook:")
        ]
    return (system / "journal").read_text().splitlines(), fields


@pytest.mark.ledger("P2-08")
def test_the_good_way_and_the_two_rejections(laptop: Laptop, tmp_path: Path) -> None:
    ways = {
        ("approves", "approves"): [REQUESTED, APPROVED, GRANTED],
        ("approves", "rejects"): [REQUESTED, APPROVED, "front-page is not approved"],
        ("rejects", "approves"): [REQUESTED, "the administrator rejects front-page"],
    }
    for number, ((administrator, owner), journal) in enumerate(ways.items()):
        (system := tmp_path / str(number)).mkdir()
        assert approve(laptop, system, administrator=administrator, owner=owner)[0] == journal


@pytest.mark.ledger("P2-03", "P2-05", "P2-06", "P2-08")
def test_what_may_pass_is_retried_in_levels_and_the_flow_goes_on(laptop: Laptop, tmp_path: Path) -> None:
    (tmp_path / "refuses").write_text("2")
    journal, retry_policies = approve(laptop, tmp_path)
    assert journal == [REQUESTED, APPROVED, GRANTED]
    assert retry_policies["administrator_approves"] == [
        "level 0 of retry policy default, after 0 s",
        "level 1 of retry policy default, after 1 s",
    ]


@pytest.mark.ledger("P2-04", "P2-05", "P2-08")
def test_after_the_last_level_the_compensations_run(laptop: Laptop, tmp_path: Path) -> None:
    (tmp_path / "refuses").write_text("99")
    journal, retry_policies = approve(laptop, tmp_path, good=False)
    assert journal == [REQUESTED, WITHDRAWN]
    assert [line.partition(",")[0] for line in retry_policies["administrator_approves"]] == [
        *(f"level {level} of retry policy default" for level in (0, 1, 1, 2)),
        "rollback: all 4 retries of the retry policy default were used",
    ]


@pytest.mark.ledger("P2-03", "P2-04", "P2-06", "P2-08")
def test_what_will_not_pass_is_undone_at_once_the_last_thing_first(laptop: Laptop, tmp_path: Path) -> None:
    """The administrator's approval succeeds at its second try: it joined the way of success, so it is undone like the others."""
    (tmp_path / "refuses").write_text("1")
    (tmp_path / "taken").touch()
    journal, retry_policies = approve(laptop, tmp_path, good=False)
    assert journal == [REQUESTED, APPROVED, TAKEN_BACK, WITHDRAWN]
    assert retry_policies["slot_approved"] == []
