"""Inputs and outputs of tasks on storage: a replica that is down, and the real S3 server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
import tes
from tests.live.s3_element import s3_table
from tests.live.test_storage_servers import signed
from tests.system.chaos.processes import free_port
from tests.system.tes.conftest import Site, ended, shell
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain
from tests.unit.apps.server.store_room import store_room

pytestmark = pytest.mark.live


@dataclass(frozen=True)
class Stored:
    """A site with storage: two elements for the same names, the nearer of which is down, and a folder of a bucket."""

    site: Site
    far: Path
    bucket: str
    """As TES names the folder of the bucket."""
    folder: str
    """As S3 does."""


@pytest.fixture(scope="module")
async def storage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stored]:
    state = tmp_path_factory.mktemp("stored")
    far = state / "far"
    far.mkdir()
    names = [{"match": "/data/(.*)", "to": "$1"}]
    cloud = s3_table()
    dead = f"http://127.0.0.1:{free_port()}/near"
    tables = [
        {"name": "near", "kind": "http", "url": dead, "private": True, "sites": ["here"], "rules": names},
        {"name": "far", "kind": "file", "path": str(far), "sites": ["there"], "rules": names},
        cloud,
    ]
    async with (
        store_room("sqlite", state) as url,
        processes(
            Domain(url, state), state, lease=60, tes_containers="host-paths", storage=json.dumps(tables)
        ) as running,
    ):
        server = await running.server()
        tenant = f"t-{uuid4().hex[:8]}"
        running.pilot(tenant, server, slots=2, site="here")
        path = urlsplit(cloud["url"]).path.strip("/")
        yield Stored(Site(running, server, tenant), far, f"s3://{path}", path.partition("/")[2])


@pytest.mark.ledger("P0-22")
def test_an_input_whose_replica_is_down_comes_from_another(storage: Stored, tmp_path: Path) -> None:
    (storage.far / "reads.txt").write_text("one\ntwo\n")
    task = tes.Task(
        inputs=[tes.Input(url="lfn:/data/reads.txt", path="/in/reads")],
        outputs=[tes.Output(url=f"file://{tmp_path}/lines", path="/out/lines")],
        executors=[shell("wc -l < /in/reads > /out/lines")],
    )
    shown = ended(storage.site.client(), task)
    assert shown.state == "COMPLETE", shown.logs[0].system_logs
    assert (tmp_path / "lines").read_text().strip() == "2"
    with storage.site.plain("viewer") as person:
        job = person.get(f"/v1/jobs/{shown.id}").json()
        assert job["attempt"] == 1, "no attempt was spent on it"
        (evidence,) = person.get(f"/v1/jobs/{shown.id}/story").json()["evidence"]
    (came,) = evidence["staging"]
    assert came["element"] == "far"
    assert any("near" in entry for entry in came["failed"]), "the nearer one was tried first"


def test_what_is_no_file_of_the_catalogue_is_refused(storage: Stored) -> None:
    fields = {"executors": [{"image": "alpine", "command": ["true"]}]}
    with storage.site.plain() as person:
        for wrong in (
            {"inputs": [{"url": "lfn:../x", "path": "/in/x"}]},
            {"inputs": [{"url": "lfn:/data/x", "path": "/in/x", "type": "DIRECTORY"}]},
            {"outputs": [{"url": "lfn:/data/x", "path": "/out/x"}]},
        ):
            assert person.post("/ga4gh/tes/v1/tasks", json=fields | wrong).status_code == 400, wrong


@pytest.mark.ledger("P0-08")
def test_inputs_and_outputs_on_s3(storage: Stored) -> None:
    put = httpx.put(signed("PUT", f"{storage.folder}/in.txt"), content=b"brought\n")
    assert put.is_success, put.text
    task = tes.Task(
        inputs=[tes.Input(url=f"{storage.bucket}/in.txt", path="/in/x")],
        outputs=[
            tes.Output(url=f"{storage.bucket}/made/out.txt", path="/out/x"),
            tes.Output(url=f"{storage.bucket}/all", path="/all", type="DIRECTORY"),
        ],
        executors=[shell("tr a-z A-Z < /in/x > /out/x; mkdir -p /all/deep; echo 1 > /all/deep/one")],
    )
    shown = ended(storage.site.client(), task)
    assert shown.state == "COMPLETE", shown.logs[0].system_logs
    assert httpx.get(signed("GET", f"{storage.folder}/made/out.txt")).text == "BROUGHT\n"
    assert httpx.get(signed("GET", f"{storage.folder}/all/deep/one")).text == "1\n"
    assert sorted(output.url for output in shown.logs[0].outputs) == [
        f"{storage.bucket}/all/deep/one",
        f"{storage.bucket}/made/out.txt",
    ]


def test_an_object_that_is_not_there_is_told(storage: Stored) -> None:
    task = tes.Task(inputs=[tes.Input(url=f"{storage.bucket}/nothing", path="/in/x")], executors=[shell("cat /in/x")])
    shown = ended(storage.site.client(), task)
    assert shown.state == "SYSTEM_ERROR"
    assert any("NoSuchKey" in system_log for system_log in shown.logs[0].system_logs), shown.logs[0].system_logs
