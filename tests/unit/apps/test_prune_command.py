"""`forestay prune` on a store of its own: counts first, asks before it removes, and says what stays."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contract.examples import job

from forestay.adapters.sql.audit import SqlAuditStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.jobs.job_document import FlowRef, State
from forestay.ports.jobs.job_store import DocumentChange

FLOW_REF = FlowRef("any", "align@1", "f" * 64, -1, 0, 1)


@pytest.fixture
def store(tmp_path: Path) -> str:
    async def fill() -> None:
        opened = SqlJobStore(url)
        await opened.open()
        old = [job(f"old-{number}", state=State.COMPLETED) for number in range(3)]
        others = [job("of-a-run", state=State.COMPLETED, flow_ref=FLOW_REF), job("waits")]
        await opened.write([DocumentChange(document, None) for document in (*old, *others)])
        await opened.close()

    url = f"sqlite:///{tmp_path / 'store.db'}"
    asyncio.run(fill())
    return url


def prune(store: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"FORESTAY_STATE": str(folder), "FORESTAY_STORE": store, "PATH": "/usr/bin:/bin"}
    line = [sys.executable, "-m", "forestay", "prune", *words]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_it_counts_asks_removes_and_says_what_stays(store: str, tmp_path: Path) -> None:
    looked = prune(store, tmp_path, "--older-than", "30d", "--dry-run")
    assert looked.returncode == 0, looked.stderr
    assert "3 jobs would be removed.\n1 kept: " in looked.stdout
    assert "FORESTAY_TEMPORAL" in looked.stdout
    refused = prune(store, tmp_path, "--older-than", "30d")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--yes" in refused.stderr
    done = prune(store, tmp_path, "--older-than", "30d", "--yes", "--json")
    assert json.loads(done.stdout) == {"removed": 3, "needed": 1, "dry_run": False}
    again = prune(store, tmp_path, "--older-than", "30d", "--yes", "--json")
    assert json.loads(again.stdout) == {"removed": 0, "needed": 1, "dry_run": False}

    async def noted() -> list[str]:
        opened = SqlJobStore(store)
        await opened.open()
        try:
            pages = await SqlAuditStore(opened.database).find("default", entry=0)
            return [entry.what for page in pages for entry in page.entries]
        finally:
            await opened.close()

    assert asyncio.run(noted()) == ["store.prune"], "that nothing went the second time needs no line"


def test_an_age_that_is_none_is_refused(store: str, tmp_path: Path) -> None:
    refused = prune(store, tmp_path, "--older-than", "soon", "--yes")
    assert refused.returncode == 2
    assert "is not a duration" in refused.stderr
