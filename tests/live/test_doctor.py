"""`forestay doctor` on a real installation with real failures: each is found, named, and comes with what to do."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from tests import servers
from tests.live.run_site import new_namespace, run_site
from tests.system.chaos.processes import free_port
from tests.unit.apps.server.scripted_pilot import ScriptedPilot
from tests.unit.apps.server.store_room import store_room

from forestay.apps.compose.stores import inspect_store, open_stores
from forestay.apps.doctor import GOOD, MISSING, NOTE, CheckResult, examine

pytestmark = pytest.mark.live

Findings = dict[str, CheckResult]


class Patient:
    """What an operator has set on a machine of the installation."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.settings = settings
        self.patch = patch
        for name in [
            value for value in os.environ if value.startswith("FORESTAY_") and not value.startswith("FORESTAY_TEST_")
        ]:
            patch.delenv(name)
        for name in ("CONFIG", "STATE", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
        patch.chdir(folder)

    async def examine(self, **changes: Any) -> tuple[bool, Findings]:
        """Whether nothing is missing, and the worst finding about each thing."""
        results: Findings = {}
        with self.patch.context() as now:
            for name, value in (self.settings | changes).items():
                now.setenv(f"FORESTAY_{name.upper()}", str(value))
            # In a thread: the doctor has a loop of its own.
            for result in await asyncio.to_thread(lambda: list(examine(None))):
                if result.about not in results or result.state == MISSING:
                    results[result.about] = result
        return MISSING not in {result.state for result in results.values()}, results


async def test_an_installation_in_order_and_what_is_said_when_a_part_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_room("postgresql", tmp_path) as empty:
        namespace = await new_namespace()
        patient = Patient(
            tmp_path,
            monkeypatch,
            store=empty,
            state=tmp_path,
            temporal=servers.temporal(),
            temporal_namespace=namespace,
        )
        well, results = await patient.examine()
        assert not well
        assert results["store"].state == MISSING
        assert "without audit, documents" in results["store"].words
        assert "forestay server" in results["store"].remedy
        assert results["orchestrators"].state == MISSING
        assert "forestay orchestrator" in results["orchestrators"].remedy
        assert "pruning" not in results
        _, results = await patient.examine(keep_days=30)
        assert "completed runs are removed after 1 days, jobs after 30" in results["pruning"].words
        assert "--retention 31d" in results["pruning"].remedy

        wrong = {"temporal": f"127.0.0.1:{free_port()}", "store": f"postgresql://forestay@127.0.0.1:{free_port()}/x"}
        _, results = await patient.examine(**wrong)
        assert results["temporal"].state == results["store"].state == MISSING
        assert "FORESTAY_STORE" in results["store"].remedy
        _, results = await patient.examine(temporal_namespace="nobody-made-it")
        assert "has no namespace nobody-made-it" in results["temporal"].words
        assert "namespace create" in results["temporal"].remedy

    async with run_site("postgresql", tmp_path, pilots=0, namespace=namespace) as site:
        client = {"server": site.server.url, "token": site.domain.token("viewer", tenant="ours")}
        patient.settings["store"] = site.domain.store
        _, results = await patient.examine(**client)
        assert results["store"].state == GOOD
        assert results["reconcilers"].state == results["pilots"].state == MISSING
        assert "there never was one" in results["reconcilers"].words

        async with site.domain.reconciler() as reconciler:
            await reconciler.noting.note()
        await ScriptedPilot.register(site.server, "ours")
        well, results = await patient.examine(**client)
        assert well, results
        for name in ("store", "clock", "reconcilers", "temporal", "orchestrators", "pilots", "runs"):
            assert results[name].state == GOOD, name
        _, results = await patient.examine(**(client | {"token": "x.y.z"}))
        assert results["token"].state == MISSING

        engine = create_async_engine(site.domain.store.replace("postgresql:", "postgresql+asyncpg:"))
        async with engine.begin() as connection:
            await connection.execute(text("UPDATE layout SET number = 99"))
        await engine.dispose()
        _, results = await patient.examine()
        assert "created by a newer release" in results["store"].words


async def test_opensearch_indexes_that_could_lose_writes_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_room("opensearch", tmp_path) as store:
        await _spoilt(store)
        well, results = await Patient(tmp_path, monkeypatch, store=store, state=tmp_path).examine()
        assert (well, results["store"].state) == (False, MISSING)


async def _spoilt(store: str) -> None:
    before = await inspect_store(store)
    assert len(before.lacking) > 5
    opened = open_stores(store).jobs
    await opened.open()
    await opened.close()
    look = await inspect_store(store)
    assert look.product.startswith("OpenSearch 3")
    assert (look.lacking, look.wrong) == ((), ())
    assert look.ahead is not None
    assert abs(look.ahead) < 60
    prefix = store.rpartition("/")[2].partition("?")[0]
    settings = {"index": {"translog.durability": "async", "blocks.read_only_allow_delete": True}}
    async with httpx.AsyncClient(base_url=servers.opensearch()[0], timeout=60) as client:
        (await client.put(f"/{prefix}-jobs/_settings", json=settings)).raise_for_status()
    look = await inspect_store(store)
    assert [words for words in look.wrong if "translog.durability async" in words]
    assert [words for words in look.wrong if "is read-only" in words]


async def test_a_certificate_that_nobody_signed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "3",
    ]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, words, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    door = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    url = f"https://localhost:{door.sockets[0].getsockname()[1]}"
    async with door:
        patient = Patient(tmp_path, monkeypatch, state=tmp_path, server=url, token="none")
        well, results = await patient.examine()
        assert (well, results["certificate"].state) == (False, MISSING)
        assert "self" in results["certificate"].words
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        _, results = await patient.examine()
        assert results["certificate"].state == NOTE
        assert "valid for 3 days" in results["certificate"].words
        assert results["certificate"].remedy == "Renew it."
