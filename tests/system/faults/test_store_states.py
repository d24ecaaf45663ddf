"""What operators and accidents do to a store, on all three kinds of it: no good completion is lost, no good job runs again, and log and doctor name the cause.

`just faults-stores` runs them, as root for those that need a disk of their own. Full disks of PostgreSQL and OpenSearch are in the files beside this one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]
import pytest
from tests import servers
from tests.system.faults.own_stores import small_disk
from tests.unit.apps.server.asks import submit_one
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.operations.test_store_errors import ENDS, jobs_missing, metric
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

pytestmark = [pytest.mark.slow, pytest.mark.finding("F-B1", "F-B6")]

JOBS = 3
MAGIC = b"SQLite format 3\0"
Break = Callable[[str], AbstractAsyncContextManager[None]]


def _sqlite_path(store: str) -> Path:
    return Path(store.removeprefix("sqlite:///"))


@asynccontextmanager
async def _damaged(store: str) -> AsyncIterator[None]:
    """The first page is garbage, and every connection is made to read it."""

    def write(data: bytes) -> None:
        descriptor = os.open(_sqlite_path(store), os.O_WRONLY)
        try:
            os.pwrite(descriptor, data, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    connection = sqlite3.connect(_sqlite_path(store), timeout=30)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    write(b"\0" * len(MAGIC))
    try:
        yield
    finally:
        write(MAGIC)


@asynccontextmanager
async def _immutable(store: str) -> AsyncIterator[None]:
    """Root can write what is read-only, but not this. The shared memory stays: a process that has mapped it would be killed."""
    files = [f"{_sqlite_path(store)}{suffix}" for suffix in ("", "-wal")]
    await asyncio.to_thread(subprocess.run, ["chattr", "+i", *files], check=True)
    try:
        yield
    finally:
        await asyncio.to_thread(subprocess.run, ["chattr", "-i", *files], check=True)


@asynccontextmanager
async def _full(store: str) -> AsyncIterator[None]:
    """Its disk, a real small one, is filled to the last byte."""
    ballast = _sqlite_path(store).parent / "ballast"

    def fill() -> None:
        with ballast.open("wb", buffering=0) as sink:
            for size in (1 << 20, 4096):
                try:
                    while True:
                        sink.write(b"\0" * size)
                except OSError:
                    continue

    await asyncio.to_thread(fill)
    try:
        yield
    finally:
        ballast.unlink()


async def _as_admin(store: str, *statements: str) -> None:
    """Past Forestay, from another database: then end all connections of this one, so that everybody meets the change."""
    connection = await asyncpg.connect(servers.postgres())
    try:
        for statement in statements:
            await connection.execute(statement)
        ours = urlsplit(store).path.strip("/")
        await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", ours)
    finally:
        await connection.close()


def _altered(broken: str, repaired: str) -> Break:
    @asynccontextmanager
    async def change(store: str) -> AsyncIterator[None]:
        parts = urlsplit(store)
        names = {"db": parts.path.strip("/"), "role": parts.username}
        await _as_admin(store, broken.format(**names))
        try:
            yield
        finally:
            await _as_admin(store, repaired.format(**names))

    return change


@asynccontextmanager
async def _renamed_database(store: str) -> AsyncIterator[None]:
    """As if it were dropped and, later, restored."""
    name = urlsplit(store).path.strip("/")
    await _as_admin(store, f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false')
    await _as_admin(store, f'ALTER DATABASE "{name}" RENAME TO "{name}_away"')
    try:
        yield
    finally:
        await _as_admin(store, f'ALTER DATABASE "{name}_away" RENAME TO "{name}"')
        await _as_admin(store, f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true')


async def _ask(store: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    parts = urlsplit(store)
    async with http_client(f"http://{parts.netloc.split(',')[0]}") as client:
        answer = await client.request(method, path, json=body, timeout=120)
    answer.raise_for_status()
    return answer.json()


def _jobs_index(store: str) -> str:
    return f"{urlsplit(store).path.strip('/')}-jobs-000001"


@asynccontextmanager
async def _closed_index(store: str) -> AsyncIterator[None]:
    await _ask(store, "POST", f"/{_jobs_index(store)}/_close")
    try:
        yield
    finally:
        await _ask(store, "POST", f"/{_jobs_index(store)}/_open")


@asynccontextmanager
async def _blocked_index(store: str) -> AsyncIterator[None]:
    await _ask(store, "PUT", f"/{_jobs_index(store)}/_settings", {"index.blocks.write": True})
    try:
        yield
    finally:
        await _ask(store, "PUT", f"/{_jobs_index(store)}/_settings", {"index.blocks.write": None})


@asynccontextmanager
async def _mapping_conflict(store: str) -> AsyncIterator[None]:
    """The jobs are in an index in which the exit code has another type: what runs fits, and its end does not."""
    index, alias = _jobs_index(store), f"{urlsplit(store).path.strip('/')}-jobs"
    wrong = f"{index}-wrong"
    mappings = (await _ask(store, "GET", f"/{index}/_mapping"))[index]["mappings"]
    mappings["properties"]["exit_code"] = {"type": "ip"}
    await _ask(store, "PUT", f"/{wrong}", {"mappings": mappings, "settings": {"number_of_replicas": 0}})
    await _ask(store, "POST", "/_reindex?refresh=true", {"source": {"index": index}, "dest": {"index": wrong}})

    async def move(away: str, to: str) -> None:
        actions = [
            {"remove": {"index": away, "alias": alias}},
            {"add": {"index": to, "alias": alias, "is_write_index": True}},
        ]
        await _ask(store, "POST", "/_aliases", {"actions": actions})

    await move(index, wrong)
    try:
        yield
    finally:
        await move(wrong, index)


STATES: dict[tuple[str, str], tuple[Break, str]] = {
    ("sqlite", "table renamed"): (jobs_missing, "jobs"),
    ("sqlite", "damaged pages"): (_damaged, "not a database"),
    ("sqlite", "read-only"): (_immutable, ""),
    ("sqlite", "disk full"): (_full, "MiB left"),
    ("postgresql", "table renamed"): (jobs_missing, "jobs"),
    ("postgresql", "database dropped and restored"): (_renamed_database, "does not exist"),
    ("postgresql", "login taken away"): (
        _altered('ALTER ROLE "{role}" NOLOGIN', 'ALTER ROLE "{role}" LOGIN'),
        "not permitted to log in",
    ),
    ("postgresql", "read-only"): (
        _altered(
            'ALTER DATABASE "{db}" SET default_transaction_read_only = on',
            'ALTER DATABASE "{db}" RESET default_transaction_read_only',
        ),
        "read-only",
    ),
    ("postgresql", "wrong search path"): (
        _altered('ALTER DATABASE "{db}" SET search_path = nowhere', 'ALTER DATABASE "{db}" RESET search_path'),
        "search path",
    ),
    ("opensearch", "alias removed"): (jobs_missing, "jobs"),
    ("opensearch", "index closed"): (_closed_index, "closed"),
    ("opensearch", "read-only"): (_blocked_index, "read-only"),
    ("opensearch", "mapping conflict"): (_mapping_conflict, "another type"),
}
"""How each state is made, and what doctor says of it; empty where it can see nothing without a write."""


@asynccontextmanager
async def _own_store(kind: str, folder: Path) -> AsyncIterator[str]:
    """A store for one test; PostgreSQL's with a role of its own, SQLite's on a disk of its own."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}"
        return
    async with store_room(kind, folder) as url:
        if kind != "postgresql":
            yield url
            return
        role = f"operator_{uuid4().hex[:8]}"
        await _as_admin(url, f"CREATE ROLE {role} SUPERUSER LOGIN")
        try:
            parts = urlsplit(url)
            yield parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl()
        finally:
            await _as_admin(url, f"REASSIGN OWNED BY {role} TO CURRENT_USER", f"DROP OWNED BY {role}")


def _doctor(store: str, state: Path) -> str:
    environment = os.environ | {"FORESTAY_STORE": store, "FORESTAY_STATE": str(state)}
    done = subprocess.run(
        [sys.executable, "-m", "forestay", "doctor", "--json", "--state", str(state)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(("kind", "state"), STATES, ids=lambda value: value.replace(" ", "-"))
async def test_nothing_is_lost_and_the_cause_is_named(kind: str, state: str, tmp_path: Path) -> None:
    break_store, doctor_says = STATES[kind, state]
    disk = tmp_path / "disk"
    disk.mkdir()
    needs_disk = state == "disk full"
    with small_disk(disk, 96 << 20) if needs_disk else nullcontext():
        async with _own_store(kind, disk) as store:
            await _try(Domain(store, tmp_path / "state"), store, break_store, doctor_says, tmp_path)


async def _try(domain: Domain, store: str, break_store: Break, doctor_says: str, folder: Path) -> None:
    domain.state.mkdir(exist_ok=True)
    tenant = f"t-{uuid4().hex[:10]}"
    starts, gate = folder / "starts", folder / "gate"
    async with processes(domain, folder) as running:
        server = await running.server()
        running.reconciler()
        ada = running.client(server, "submitter", "viewer", tenant=tenant)
        wait = f"echo $FORESTAY_JOB >> {starts}; while [ ! -e {gate} ]; do sleep 0.05; done"
        jobs = [await submit_one(ada, command=["sh", "-c", wait], max_attempts=3) for _ in range(JOBS)]
        running.pilot(tenant, server, slots=JOBS)

        async def started() -> bool:
            return starts.exists() and len(starts.read_text().splitlines()) == JOBS

        await until(started, "the start of the jobs", 180)
        async with break_store(store):
            before = await metric(ada, ENDS)
            await asyncio.to_thread(gate.touch)

            async def tried() -> bool:
                return await metric(ada, ENDS) >= before + 4

            await until(tried, "several deliveries of the completions", 120)
            words = await asyncio.to_thread(_doctor, store, domain.state)
            assert doctor_says in words, words
            assert await metric(ada, "forestay_store_errors_total") > 0

        async def completed() -> bool:
            found = [await ada.get(f"/v1/jobs/{job}") for job in jobs]
            return all(answer.status_code == 200 and answer.json()["state"] == "completed" for answer in found)

        await until(completed, "all completions", 120)
    assert sorted(starts.read_text().splitlines()) == sorted(jobs), "each ran once"
    lines = [json.loads(line) for line in (folder / "server-0.log").read_text().splitlines() if line.startswith("{")]
    assert [line for line in lines if line["event"] == "store error" and line["detail"]], "the log names the cause"
