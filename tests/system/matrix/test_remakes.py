"""Outputs that are deleted or damaged are made again: real servers, a real reconciler and real pilots."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.system.matrix.room import Room, room
from tests.system.matrix.site import FailureSite, failure_site, until

from forestay.client.api.schemas import SpecificationJson


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FailureSite]:
    """Two remakes may follow from each other, and not a third."""
    async with failure_site(tmp_path_factory.mktemp("site"), safeguard_depth=2) as running:
        yield running


@pytest.fixture
def here(site: FailureSite) -> Iterator[Room]:
    with room(site, failing=True) as made:
        made.host()
        yield made


class Chain:
    """Jobs a, b, c, … of which each reads what the one before made, and says in a file that it runs."""

    def __init__(self, here: Room) -> None:
        self.here, self.ran = here, here.folder / "ran"
        self.jobs: dict[str, str] = {}

    def submit(self, name: str, **more: object) -> str:
        source = f"job:{list(self.jobs.values())[-1]}/made" if self.jobs else ""
        spec: SpecificationJson = self.here.spec(
            f"echo {name} >> {self.ran}; {{ {'cat x;' if source else ''} echo {name}; }} > made",
            inputs=[{"name": "x", "source": source}] if source else [],
            **more,
        )
        (accepted,) = self.here.client.submit([{}], spec)
        self.jobs[name] = accepted["id"]
        return accepted["id"]

    def run(self, names: str, **more: object) -> None:
        for name in names:
            job = self.submit(name, **more)
            until(lambda job=job: self.here.client.job(job)["state"] == "completed", "its end")  # type: ignore[misc]

    def made(self, name: str) -> Path:
        return Path(self.here.client.outputs(self.jobs[name])["manifest"]["path"]).with_name("made")

    def lose(self, names: str) -> None:
        for name in names:
            shutil.rmtree(self.made(name).parent)

    def starts(self) -> str:
        return "".join(self.ran.read_text().split())

    def held(self) -> str:
        """Why a person is asked, as soon as one is."""
        incidents = until(lambda: self.here.operator.find_incidents({"state": "held"}).incidents, "the incident")
        (incident,) = incidents
        return str(incident["note"])


def test_a_chain_whose_outputs_were_deleted_or_damaged_runs_again_as_far_as_it_has_to(here: Room) -> None:
    chain = Chain(here)
    chain.run("ab")
    chain.lose("a")
    chain.made("b").write_text("damaged\n")
    last = chain.submit("c")
    until(lambda: here.client.job(last)["state"] == "completed", "the last job")
    assert chain.starts() == "ab" + "ab" + "c"
    assert chain.made("c").read_text() == "a\nb\nc\n"
    shown = here.client.job(last)
    assert (shown["attempt"], shown["failures"]) == (2, 0)
    assert {job["state"] for job in here.jobs()} == {"completed"}
    assert not here.operator.find_incidents({"state": "held"}).incidents


def test_a_producer_with_external_effects_is_left_to_a_person(here: Room) -> None:
    chain = Chain(here)
    chain.run("a", effects="external")
    chain.lose("a")
    last = chain.submit("b")
    assert "has external effects" in chain.held()
    assert here.client.job(last)["state"] == "faulted"
    assert chain.starts() == "a"


def test_a_chain_longer_than_the_safeguards_allow_is_left_to_a_person(here: Room) -> None:
    chain = Chain(here)
    chain.run("abc")
    chain.lose("abc")
    last = chain.submit("d")
    assert chain.held() == "2 actions followed from each other; 2 are allowed"
    assert here.client.job(last)["held"]
    assert chain.starts() == "abc"
