"""A store that fails although the request is right: nothing is blamed on the caller, and no finished work is lost."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
import httpx
import pytest
from tests.unit.apps.server.asks import problem, read, submit_one
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until

ENDS = 'forestay_request_seconds_count{route="/v1/pilots/{pilot}/completions"}'
ATTEMPTS = 5
"""Deliveries of one completion that a pilot must make; pilots used to discard it after the fourth refusal."""


@asynccontextmanager
async def jobs_missing(store: str) -> AsyncIterator[None]:
    """The store without its jobs, as after a wrong migration: the servers' own statements fail."""
    scheme = urlsplit(store).scheme
    if scheme == "sqlite":
        path = store.removeprefix("sqlite:///")
        _rename_in_sqlite(path, "jobs", "jobs_away")
        try:
            yield
        finally:
            _rename_in_sqlite(path, "jobs_away", "jobs")
    elif scheme == "postgresql":
        connection = await asyncpg.connect(store)
        try:
            await connection.execute("ALTER TABLE jobs RENAME TO jobs_away")
            yield
            await connection.execute("ALTER TABLE jobs_away RENAME TO jobs")
        finally:
            await connection.close()
    else:
        parts = urlsplit(store)
        prefix = parts.path.strip("/")
        target = {"index": f"{prefix}-jobs-000001", "alias": f"{prefix}-jobs"}
        async with http_client(f"http://{parts.netloc.split(',')[0]}") as client:
            removal = {"actions": [{"remove": target}]}
            (await client.post("/_aliases", json=removal)).raise_for_status()
            try:
                yield
            finally:
                addition = {"actions": [{"add": target | {"is_write_index": True}}]}
                (await client.post("/_aliases", json=addition)).raise_for_status()


def _rename_in_sqlite(path: str, before: str, after: str) -> None:
    connection = sqlite3.connect(path, timeout=30)
    try:
        connection.execute(f"ALTER TABLE {before} RENAME TO {after}")
        connection.commit()
    finally:
        connection.close()


async def metric(client: httpx.AsyncClient, name: str) -> float:
    """The sum of all samples whose line begins with this name."""
    text = (await client.get("/metrics")).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def spooled(folder: Path, suffix: str) -> list[Path]:
    """What pilots keep in their spools."""
    return list(folder.glob(f"work-*/pilot-*/spool/*{suffix}"))


@pytest.mark.finding("F-B1", "F-B6")
async def test_a_job_that_ended_while_its_table_was_missing_is_not_run_again(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    starts, gate = tmp_path / "starts", tmp_path / "gate"
    async with processes(own_domain, tmp_path) as running:
        server = await running.server()
        ada = running.client(server, "submitter", "viewer", tenant=tenant)
        wait = f"echo started >> {starts}; while [ ! -e {gate} ]; do sleep 0.05; done"
        job = await submit_one(ada, command=["sh", "-c", wait])
        running.pilot(tenant, server)

        async def started() -> bool:
            return await asyncio.to_thread(starts.exists)

        await until(started, "the start of the job")
        async with jobs_missing(own_domain.store):
            before = await metric(ada, ENDS)
            await asyncio.to_thread(gate.touch)

            async def refused_often() -> bool:
                return bool(spooled(tmp_path, ".refused")) or await metric(ada, ENDS) >= before + ATTEMPTS

            await until(refused_often, f"{ATTEMPTS} deliveries of the completion")
            problem(await ada.get(f"/v1/jobs/{job}"), 503)
            assert spooled(tmp_path, ".json"), "the completion is on disk"
            assert await metric(ada, "forestay_store_errors_total") > 0

        async def completed() -> bool:
            return bool((await read(ada, job))["state"] == "completed")

        await until(completed, "the completion")
    assert starts.read_text().splitlines() == ["started"]
    lines = map(json.loads, (tmp_path / "server-0.log").read_text().splitlines())
    errors = [line for line in lines if line["event"] == "store error"]
    assert any(line["operation"].startswith("jobs.") and line["detail"] for line in errors), (
        "the server logged the cause"
    )
