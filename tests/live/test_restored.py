"""A store is brought back from a backup: claims of the time since are fenced off, and nothing is done twice unseen."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from sqlalchemy import make_url
from tests.system.faults.own_stores import OPENSEARCH, OwnServers, own_servers
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot
from tests.unit.apps.server.store_room import store_room

from forestay.apps.compose.stores import open_stores
from forestay.apps.operations.restore import LOOK, restore_store
from forestay.domain.jobs.restoring import STEP, next_generation
from forestay.ports.errors import Conflict
from forestay.services.jobs.store_marks import GENERATION, GenerationStatus, generation_of
from forestay.services.pilots.reconciler_registry import ReconcilerRegistry

TENANT = "physics"


class Backup(NamedTuple):
    """How a store is saved and brought back."""

    url: str
    save: Callable[[], Coroutine[Any, Any, None]]
    bring_back: Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def backup_of(kind: str, folder: Path) -> AsyncIterator[Backup]:
    if kind == "opensearch":
        # Of its own: the one that everybody shares may have been started without a place for snapshots.
        with own_servers(OPENSEARCH) as own:
            yield _opensearch(own)
        return
    async with store_room(kind, folder) as url:
        yield _sqlite(url, folder) if kind == "sqlite" else _postgresql(url, folder)


def _opensearch(own: OwnServers) -> Backup:
    """A snapshot of all indexes of the prefix into a repository of files."""
    prefix = f"fs-{uuid4().hex[:12]}"
    place, indexes = f"/_snapshot/{prefix}", {"indices": f"{prefix}-*", "include_global_state": False}

    async def save() -> None:
        await own.ask("PUT", place, {"type": "fs", "settings": {"location": prefix}})
        value = await own.ask("PUT", f"{place}/one?wait_for_completion=true", indexes)
        assert value["snapshot"]["state"] == "SUCCESS", value

    async def bring_back() -> None:
        for entry in await own.ask("GET", f"/_cat/indices/{prefix}-*?h=index&format=json"):
            await own.ask("DELETE", f"/{entry['index']}")
        value = await own.ask("POST", f"{place}/one/_restore?wait_for_completion=true", indexes)
        assert value["snapshot"]["shards"]["failed"] == 0, value

    return Backup(f"opensearch://{own.opensearch}/{prefix}?timeout=30", save, bring_back)


def _sqlite(url: str, folder: Path) -> Backup:
    file, saved = Path(url.removeprefix("sqlite:///")), folder / "saved.db"

    async def save() -> None:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(saved)) as target:
            source.backup(target)

    async def bring_back() -> None:
        for rest in ("", "-wal", "-shm"):
            Path(f"{file}{rest}").unlink(missing_ok=True)  # noqa: ASYNC240 - nobody else waits
        shutil.copy(saved, file)

    return Backup(url, save, bring_back)


def _postgresql(url: str, folder: Path) -> Backup:
    place, saved = make_url(url), folder / "saved.dump"
    where = ["-h", str(place.host), "-p", str(place.port), "-U", str(place.username)]
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))[-1]

    async def order(program: str, *words: str) -> None:
        await asyncio.to_thread(
            subprocess.run,
            [str(programs / program), *where, *words],
            check=True,
            capture_output=True,
            env={**os.environ},
        )

    async def save() -> None:
        await order("pg_dump", "--format=custom", f"--file={saved}", str(place.database))

    async def bring_back() -> None:
        await order("dropdb", "--force", str(place.database))
        await order("createdb", "--template=template0", str(place.database))
        await order("pg_restore", "--exit-on-error", f"--dbname={place.database}", str(saved))

    return Backup(url, save, bring_back)


async def submit(server: RunningServer, name: str, key: str = "", **more: Any) -> str:
    specification = {"name": name, "command": ["true"]} | more
    headers = {"Idempotency-Key": key} if key else {}
    person = server.person("submitter", tenant=TENANT)
    answer = await person.post("/v1/jobs", json={"specification": specification, "jobs": [{}]}, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    id_data: str = answer.json()["jobs"][0]["id"]
    return id_data


async def job(server: RunningServer, name: str) -> dict[str, Any]:
    answer = await server.person("viewer", tenant=TENANT).get(f"/v1/jobs/{name}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("sqlite", marks=pytest.mark.live),
        pytest.param("postgresql", marks=pytest.mark.live),
        pytest.param("opensearch", marks=[pytest.mark.live, pytest.mark.slow]),
    ],
)
async def test_what_was_claimed_after_the_backup_is_fenced_off(kind: str, tmp_path: Path) -> None:
    async with backup_of(kind, tmp_path) as backup:
        domain = Domain(backup.url, tmp_path / "state")
        async with domain.server() as server:
            old = await ScriptedPilot.register(server, TENANT)
            done = await submit(server, "done")
            assert await old.end(await old.claim_one()) == ["committed"]
            running = await submit(server, "running")
            before = await old.claim_one()
            waits = await submit(server, "waits")
            outside = await submit(server, "outside", effects="external")
            await server.refresh()
            await backup.save()

            # The world goes on, and the store will know nothing of it.
            assert await old.end(before) == ["committed"]
            later = {record["job"]: record for record in await old.claim(most=2)}
            assert later.keys() == {waits, outside}
            assert await old.end(later[outside]) == ["committed"]
            late = await submit(server, "late", key="the-same")
            claimed_late = await old.claim_one()
        await backup.bring_back()

        raised = await restore_store(domain.settings(), reason="the backup of midnight", look=0.1)
        assert (raised.jobs, raised.running, raised.held) == (3, 1, 1)
        assert raised.generation > 0
        async with domain.server() as server:
            old.home = server
            # Nothing that the old pilot has counts, and all of it is kept.
            results = await old.end(before, later[waits], later[outside])
            assert results == ["superseded"] * 3
            await server.refresh()
            for name in (running, waits, outside):
                shown = await job(server, name)
                assert (shown["state"], shown["generation"]) == ("available", raised.generation)
                body = (await server.person("viewer", tenant=TENANT).get(f"/v1/jobs/{name}/story")).json()
                assert [line for line in body["story"] if "the backup of midnight" in line["words"]]
                assert [entry for entry in body["evidence"] if entry["kind"] == "late-completion"]
            assert (await job(server, done))["state"] == "completed"
            assert (await job(server, outside))["holders"] == ["restored"]

            # The same key makes the same job, with tokens that were never given.
            assert await submit(server, "late", key="the-same") == late
            new = await ScriptedPilot.register(server, TENANT, host="node2")
            claims: dict[str, dict[str, Any]] = {}

            async def all_three() -> bool:
                claims.update({record["job"]: record for record in await new.claim(most=3, wait=1)})
                return claims.keys() == {running, waits, late}

            await until(all_three, "the three jobs that anyone may have")
            assert {(claim["generation"], claim["attempt"]) for claim in claims.values()} == {
                (raised.generation, 1),
                (raised.generation, 2),
            }
            assert await old.end(claimed_late) == ["superseded"]
            assert await new.end(*claims.values()) == ["committed"] * 3
            assert await new.claim(wait=0) == [], "what has effects outside waits for a person"


@pytest.mark.live
async def test_a_second_restore_of_the_same_backup_gives_a_higher_generation(tmp_path: Path) -> None:
    async with backup_of("sqlite", tmp_path) as backup:
        domain = Domain(backup.url, tmp_path / "state")
        async with domain.server() as server:
            await submit(server, "waits")
        await backup.save()
        first = await restore_store(domain.settings(), reason="once", look=0)
        again = await restore_store(domain.settings(), reason="and again, with nothing lost", look=0)
        assert again.generation >= first.generation + STEP
        stores = open_stores(backup.url)
        await stores.jobs.open()
        assert await generation_of(stores.documents) == GenerationStatus(again.generation)
        # Interrupted, it goes on with the same number.
        (document,) = (await stores.documents.get([GENERATION])).values()
        begun = document.document._replace(
            body={**document.document.body, "unfinished": True, "number": again.generation + 10}
        )
        await stores.documents.put([(begun, document.version)])
        third = await restore_store(domain.settings(), reason="interrupted before", look=0)
        assert (third.generation, third.jobs) == (again.generation + 10, 1)
        await stores.jobs.close()
    day = 86_400_000
    now = 1_900_000_000_000
    assert next_generation(0, now) % STEP == 0
    assert next_generation(0, now + day) > next_generation(0, now) + STEP, "whatever the backup knows"
    assert next_generation(10**9, now) == 10**9 + STEP


@pytest.mark.live
async def test_it_is_refused_while_something_runs(tmp_path: Path) -> None:
    domain = Domain(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path)
    async with domain.server():
        with pytest.raises(Conflict, match="server "):
            await restore_store(domain.settings(), reason="too early", look=LOOK)
    async with domain.reconciler() as reconciler:
        await reconciler.noting.note()
        assert isinstance(reconciler.noting, ReconcilerRegistry)
    with pytest.raises(Conflict, match="reconciler "):
        await restore_store(domain.settings(), reason="too early", look=0)
