"""Runs on a real Temporal that is reached by mutual TLS and keeps nothing that it could read."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from tests import servers
from tests.live.run_site import TENANT, new_namespace, run_site
from tests.system.identity.certificates import Authority

from forestay.adapters.temporal.flow_engine import TemporalFlowEngine
from forestay.adapters.temporal.security import Security
from forestay.apps.compose.loops import stop
from forestay.ports.errors import Transient

pytestmark = pytest.mark.live
SECRET = "sesame-open-thyself"
FLOW = f"""
forestay: 1
name: sealed
params: {{word: none}}
tasks:
  say: {{command: [echo, "{SECRET}-command", "${{params.word}}"]}}
outputs: {{code: "${{tasks.say.exit_code}}"}}
"""


@asynccontextmanager
async def guarded(authority: Authority) -> AsyncIterator[str]:
    """The address of a door of TLS before the real Temporal, for those with a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(authority.certificate("temporal"))
    context.set_alpn_protocols(["h2"])
    host, _, port = servers.temporal().rpartition(":")

    open_ones: list[asyncio.Task[Any] | None] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65_536):
                writer.write(piece)
                await writer.drain()
        except (OSError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.append(asyncio.current_task())
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        with suppress(asyncio.CancelledError):
            await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    door = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{door.sockets[0].getsockname()[1]}"
    finally:
        door.close()
        for task in filter(None, open_ones):
            await stop(task)


def _keys(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return path


async def _kept(namespace: str, run: str) -> bytes:
    """Everything that Temporal keeps of a run, as somebody sees it who is inside."""
    inside = await Client.connect(servers.temporal(), namespace=namespace)
    result = b""
    async for workflow in inside.list_workflows():
        async for event in inside.get_workflow_handle(workflow.id, run_id=workflow.run_id).fetch_history_events():
            result += event.SerializeToString()
    assert run.encode() in result
    return result


async def test_temporal_by_mutual_tls_keeps_nothing_that_it_could_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    old, new = "2025 " + "ab" * 32, "2026 " + "cd" * 32
    keys = _keys(tmp_path / "keys", old)
    own = authority.certificate("orchestrator")
    async with guarded(authority) as address:
        settings: dict[str, Any] = {"temporal": address, "temporal_ca": authority.file, "temporal_certificate": own}
        namespace = await new_namespace()
        state = tmp_path / "site"
        state.mkdir()
        async with run_site("sqlite", state, namespace=namespace, temporal_keys=keys, **settings) as site:
            run = await site.start(FLOW, word=f"{SECRET}-param")
            summary = await site.ended(run)
            assert summary.state == "completed"
            kept = await _kept(namespace, run)
            assert SECRET.encode() not in kept
            assert b"2025" in kept
            # Who has the key reads the same history in words.
            reader = site.server.person("viewer", tenant=TENANT)
            response = await reader.get(f"/v1/runs/{run}/history")
            assert response.status_code == 200, response.text
            assert f"{SECRET}-param" in response.text

        def engine(security: Security) -> TemporalFlowEngine:
            return TemporalFlowEngine(address, namespace=namespace, task_queue="forestay", security=security)

        # A new key seals, and what the old one sealed is still read; without it nothing is.
        turned = Security(authority.file, own, keys=_keys(keys, new, old))
        page = await engine(turned).history(run, limit=100, cursor=None)
        assert f"{SECRET}-param" in str(page)
        alone = Security(authority.file, own, keys=_keys(tmp_path / "alone", new))
        with pytest.raises(Transient, match="2025"):
            await engine(alone).history(run, limit=100, cursor=None)
        with pytest.raises(Transient):  # without a certificate
            await engine(Security(authority.file)).client()
