"""Outputs of one job on a storage element that really runs, and another job that reads them from there: server, pilots and storage are the real ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast
from uuid import uuid4

import pytest
from tests.servers import address
from tests.system.matrix.room import Room, room
from tests.system.matrix.site import FailureSite, failure_site, until

from forestay.client.api.schemas import NewJob

pytestmark = [pytest.mark.live, pytest.mark.pair]

KINDS = ("root", "http")


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FailureSite]:
    """Each kind of storage is the element of one site."""
    doors = {"root": address("FORESTAY_TEST_XROOTD"), "http": address("FORESTAY_TEST_XROOTD_HTTP")}
    folder = f"t-{uuid4().hex[:10]}"
    tables = [
        {"name": f"se-{kind}", "kind": kind, "url": doors[kind], "private": True, "sites": [kind], "outputs": f"{folder}/{kind}"}
        for kind in KINDS
    ]  # fmt: skip
    async with failure_site(tmp_path_factory.mktemp("site"), storage=json.dumps(tables)) as running:
        yield running


@pytest.fixture
def here(site: FailureSite) -> Iterator[Room]:
    with room(site, failing=False) as made:
        yield made


@pytest.mark.ledger("P0-08")
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_kept_on_an_element_and_read_from_it(here: Room, kind: str) -> None:
    here.host(site=kind)
    here.client.submit([cast(NewJob, {})], here.spec("seq 100000 > made"))
    here.state("completed", "failed")
    first: dict[str, Any] = dict(here.operator.job(here.measured()))
    assert first["state"] == "completed", first
    manifest = first["winner"]["manifest"]
    assert manifest["path"].startswith(f"element:se-{kind}/")
    assert not list((here.folder / "out-sound").rglob("made")), "nothing is in the pilot's own folder"
    spec = {
        **here.spec("wc -l < in > made"),
        "name": "reads",
        "inputs": [{"name": "in", "source": f"job:{first['id']}/made"}],
    }
    here.client.submit([cast(NewJob, {})], cast(Any, spec))

    def second() -> list[Any]:
        return [
            job for job in here.operator.find_jobs({"name": "reads"}).jobs if job["state"] in ("completed", "failed")
        ]

    until(lambda: bool(second()), "the job that reads")
    (read,) = second()
    assert read["state"] == "completed", json.dumps(here.operator.job(read["id"])["last"], indent=1)
    assert read["attempt"] == 1
