"""The re-stage patterns of paper P0 on real servers that fail: a killed HTTP server, a slow one, a corrupt replica, full disks."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest
from tests.live.s3_element import s3_table
from tests.small_disk import small_disk
from tests.system.chaos.processes import free_port
from tests.system.matrix.room import Room, room
from tests.system.matrix.site import FailureSite, failure_site, until
from tests.unit.pilot.storage_server import Failure, serving

from forestay.adapters.botocore.signing import S3Signer
from forestay.adapters.system.secrets import ReferencedSecrets
from forestay.apps.config.storage_settings import ElementTable, credentials_of
from forestay.client.api import file_calls
from forestay.client.api.schemas import NewJob

pytestmark = [pytest.mark.live, pytest.mark.pair]

MIB = 1 << 20
CLOUD = "cloud"
NEAR = "near"


class Elements:
    """The storage elements of the tests: a web server near by, S3 far away, and a small disk."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "near"
        self.files.mkdir()
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.port = free_port()
        self.cloud = s3_table(CLOUD, sites=["south"], outputs="out", rules=[{"match": "/both/(.*)", "to": "$1"}])
        near = {
            "name": NEAR,
            "kind": "http",
            "url": f"http://127.0.0.1:{self.port}",
            "private": True,
            "sites": ["north"],
            "rules": [{"match": "/(?:near|both)/(.*)", "to": "$1"}],
        }
        disk = {"name": "disk", "kind": "file", "path": str(self.disk), "sites": ["east"], "outputs": "out"}
        self.tables = [near, self.cloud, disk]

    def put(self, path: str, content: bytes) -> None:
        """Into the cloud."""
        table = ElementTable.model_validate(self.cloud)
        url = S3Signer(credentials_of([table]), ReferencedSecrets()).sign(
            table.element, "PUT", f"{table.door.base}/{path}", 60
        )
        assert httpx.put(url, content=content, trust_env=False).status_code == 200

    @contextmanager
    def web(self) -> Iterator[subprocess.Popen[bytes]]:
        """The web server, which a test may kill."""
        words = [sys.executable, "-m", "http.server", str(self.port), "--bind", "127.0.0.1", "-d", str(self.files)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                until(self._answers, "the web server")
                yield server
            finally:
                server.kill()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="module")
def elements(tmp_path_factory: pytest.TempPathFactory) -> Elements:
    return Elements(tmp_path_factory.mktemp("elements"))


@pytest.fixture(scope="module")
async def site(elements: Elements, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FailureSite]:
    storage = json.dumps(elements.tables)
    async with failure_site(tmp_path_factory.mktemp("site"), storage=storage) as running:
        yield running


@pytest.fixture
def here(site: FailureSite) -> Iterator[Room]:
    with room(site, failing=True) as made:
        yield made


def name() -> str:
    return f"{uuid4().hex[:10]}.dat"


def ended(here: Room, state: str = "completed") -> dict[str, Any]:
    here.state(state, "failed")
    shown = dict(here.operator.job(here.measured()))
    assert shown["state"] == state, shown
    return shown


def replicas(here: Room, file: str) -> dict[str, bool]:
    """Whether the replica on each element is thought to be bad."""
    reply = here.operator.send(file_calls.where(file))
    return {replica["element"]: replica["bad"] for replica in reply["replicas"]}


def until_replicas(here: Room, file: str, bad: dict[str, bool]) -> None:
    """What a pilot says of replicas is noted beside the end of its job, not before."""
    until(lambda: replicas(here, file) == bad, f"the replicas of {file} to be {bad}")


@pytest.mark.ledger("P0-12")
def test_a_killed_server_is_passed_over_for_another_replica(here: Room, elements: Elements) -> None:
    file = name()
    (elements.files / file).write_bytes(b"good")
    elements.put(file, b"good")
    here.host(site="north")
    spec = here.spec(
        "cmp x y && echo done > made", inputs=[{"name": char, "source": f"lfn:/both/{file}"} for char in "xy"]
    )
    with elements.web() as web:
        web.kill()
        web.wait()
        here.client.submit([cast(NewJob, {})], spec)
        shown = ended(here)
    assert shown["attempt"] == 1, "the pilot went on to the other replica by itself"
    until_replicas(here, f"lfn:/both/{file}", {CLOUD: False, NEAR: True})


@pytest.mark.ledger("P0-12")
def test_a_corrupt_replica_is_left_for_another_one(here: Room, elements: Elements) -> None:
    file = name()
    lfn = f"lfn:/near/{file}"
    (elements.files / file).write_bytes(b"evil")
    elements.put(f"copies/{file}", b"good")
    digest = hashlib.sha256(b"good").hexdigest()
    here.operator.send(file_calls.add_replica(lfn, CLOUD, path=f"copies/{file}", size=4, sha256=digest))
    here.host(site="north")
    with elements.web():
        spec = here.spec('test "$(cat x)" = good && echo done > made', inputs=[{"name": "x", "source": lfn}])
        here.client.submit([cast(NewJob, {})], spec)
        shown = ended(here)
    assert shown["attempt"] == 1
    until(lambda: replicas(here, lfn) == {CLOUD: False, NEAR: True}, "the mark on the corrupt replica")


@pytest.mark.ledger("P0-12")
def test_without_another_replica_a_person_is_asked(here: Room, elements: Elements) -> None:
    rule(here, 'cause == "data-missing"', {"cause": "data-missing"}, {"action": "restage", "how": "other-replica"})
    here.host(site="north")
    with elements.web():
        here.client.submit([cast(NewJob, {})], here.spec(inputs=[{"name": "x", "source": f"lfn:/near/{name()}"}]))
        here.incident("held")
    (incident,) = here.operator.find_incidents({"job": here.measured()}).incidents
    assert "no other replica" in str(incident["note"])
    assert here.operator.job(here.measured())["attempt"] == 1


@pytest.mark.ledger("P0-11")
def test_a_slow_server_is_given_more_time(here: Room, tmp_path: Path) -> None:
    """Once by a rule, which gives too little time, and then by the default policy, which gives more."""
    (tmp_path / "x").write_bytes(b"good")
    with serving(tmp_path) as slow:
        slow.failures = [Failure(status=503)] * 3 + [Failure(delay=2.0)] * 50
        rule(here, 'cause == "transfer" && job.attempt == 1', {"cause": "transfer", "job": {"attempt": 1}}, changed(1))
        here.host()
        spec = here.spec("echo done > made", inputs=[{"name": "x", "source": f"{slow.url}/x"}], max_attempts=1)
        here.client.submit([cast(NewJob, {})], spec)
        shown = ended(here)
    assert shown["attempt"] == 3
    assert len(here.operator.find_incidents({"job": shown["id"]}).incidents) == 2


@pytest.mark.ledger("P0-13")
def test_a_job_moves_to_another_site_and_its_files_with_it(here: Room, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"\0" * MIB)
    free = here.busy_host("roomy", site="south", slots="1")
    here.host("small", prepare="mount -t tmpfs -o size=512k tmpfs $WORK", site="north", disk=str(4 * MIB))
    spec = here.spec(inputs=[{"name": "x", "source": str(large)}])
    here.client.submit([cast(NewJob, {"resources": {"disk": MIB}})], spec)
    here.incident()
    free()
    shown = ended(here)
    assert (shown["attempt"], shown["last"]["host"]) == (2, "roomy")
    manifest = shown["winner"]["manifest"]
    assert manifest["path"].startswith(f"element:{CLOUD}/out/"), "the outputs went to the element of the new site"


@pytest.mark.ledger("P0-32")
def test_room_is_reserved_before_the_files_are_brought_again(here: Room, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"\0" * MIB)
    steps: list[dict[str, object]] = [
        {"action": "reserve-space", "size": 8 * MIB},
        {"action": "restage", "how": "same"},
    ]
    rule(here, 'cause == "disk"', {"cause": "disk"}, *steps)
    free = here.busy_host("roomy")
    here.host("small", prepare="mount -t tmpfs -o size=512k tmpfs $WORK", disk=str(4 * MIB))
    here.client.submit(
        [cast(NewJob, {"resources": {"disk": MIB}})], here.spec(inputs=[{"name": "x", "source": str(large)}])
    )
    here.incident()
    free()
    shown = ended(here)
    assert (shown["attempt"], shown["last"]["host"], shown["resources"]["disk"]) == (2, "roomy", 8 * MIB)


@pytest.mark.ledger("P0-32")
def test_a_full_host_gives_back_what_its_cache_holds(here: Room, elements: Elements, tmp_path: Path) -> None:
    """The scratch of the host has room for one of two files; the cache keeps the first."""
    here.host(
        "small",
        prepare="mount -t tmpfs -o size=5m tmpfs $WORK",
        work=tmp_path,
        cache=str(tmp_path / "cache"),
        cache_space=str(4 * MIB),
        cache_keep="0",
    )
    for place in range(2):
        file = name()
        (elements.files / file).write_bytes(os.urandom(3 * MIB))
        inputs = [{"name": "x", "source": f"lfn:/near/{file}", "bytes": 3 * MIB}]
        with elements.web():
            (job,) = here.client.submit([cast(NewJob, {})], here.spec(inputs=inputs))
            until(lambda job=job: here.operator.job(job["id"])["state"] in ("completed", "failed"), "the end")  # type: ignore[misc]
        shown = here.operator.job(job["id"])
        assert (shown["state"], shown["attempt"]) == ("completed", place + 1), shown["last"]


@pytest.mark.ledger("P0-32")
def test_a_full_element_gives_back_what_lost_attempts_left(here: Room, elements: Elements) -> None:
    with small_disk(elements.disk, 3):
        here.host(site="east")
        spec = here.spec("head -c 1500000 /dev/zero > made", max_attempts=1)
        (before,) = here.client.submit([cast(NewJob, {})], spec)
        until(lambda: here.operator.job(before["id"])["state"] == "completed", "the job before")
        winner: Any = here.operator.job(before["id"])["winner"]
        kept = winner["manifest"]["path"].removeprefix("element:disk/")
        left = elements.disk / Path(kept).parent.parent / "0.1.00000000"
        left.mkdir()
        (left / "made").write_bytes(b"\0" * 1_400_000)
        (job,) = here.client.submit([cast(NewJob, {})], spec)
        until(lambda: here.operator.job(job["id"])["state"] in ("completed", "failed"), "the end")
        shown = here.operator.job(job["id"])
        assert (shown["state"], shown["attempt"]) == ("completed", 2), shown["last"]
        assert not left.exists()
        assert (elements.disk / kept).exists(), "what was committed stays"


def changed(timeout: int) -> dict[str, object]:
    return {"action": "restage", "how": "changed", "timeout": timeout}


def rule(here: Room, condition: str, context: dict[str, object], *steps: dict[str, object]) -> None:
    draft = {
        "type": "abort",
        "condition": condition,
        "conclusion": {"steps": list(steps)},
        "reference_incident": f"c-{uuid4().hex[:8]}",
        "context": context,
    }
    made = here.operator.add_rule("domain/site", draft)
    here.operator.set_rule_state("domain/site", str(made["rule"]), "active")
    here.known()
