"""What goes out goes to a listed host, and to the very address that was looked at: a name that changes its mind between two looks gains nothing."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from forestay.adapters.aiohttp.task_service import _OneHost
from forestay.adapters.httpx import peer_calls
from forestay.adapters.httpx.callback_transport import HttpxCallbackTransport
from forestay.adapters.httpx.guarded import guarded_client
from forestay.adapters.httpx.oidc_endpoints import HttpxOidcEndpoints
from forestay.adapters.system.secrets import ReferencedSecrets
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.domain.peers.peer import Peer
from forestay.ports.errors import Permanent, Transient
from forestay.ports.peers.peer import Caller


async def test_a_name_is_looked_up_once_and_that_address_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    there = await asyncio.start_server(hear, "127.0.0.1", 0)
    port = there.sockets[0].getsockname()[1]
    loop, looked = asyncio.get_running_loop(), []
    real = loop.getaddrinfo

    async def look_up(host: Any, to: Any, **more: Any) -> Any:
        looked.append(host)
        if host != "hook.example.org":
            return await real(host, to, **more)
        # Public or allowed at the first look, somewhere else at the second: what a hostile name server does.
        address = "127.0.0.1" if looked.count(host) == 1 else "127.0.0.9"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, to))]

    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    url = f"http://hook.example.org:{port}/done"
    async with there:
        await HttpxCallbackTransport(("private:hook.example.org",)).post(url, {}, delivery="1")
        assert len(heard) == 1
        assert f"host: hook.example.org:{port}".encode() in heard[0].lower()
        assert looked.count("hook.example.org") == 1
        looked.clear()
        # Where the name may not be private, the same answer is refused before anything is sent.
        with pytest.raises(Permanent, match="not a public address"):
            await HttpxCallbackTransport(("hook.example.org",)).post(url, {}, delivery="2")
        assert len(heard) == 1


@asynccontextmanager
async def _listener(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        with suppress(OSError):
            await writer.drain()
        writer.close()

    there = await asyncio.start_server(hear, "127.0.0.1", 0)
    async with there:
        yield there.sockets[0].getsockname()[1], heard


async def test_only_listed_hosts_are_called_and_no_redirect_is_followed() -> None:
    leads_on = b"HTTP/1.1 307 Elsewhere\r\nlocation: http://127.0.0.2:%d/\r\ncontent-length: 0\r\n\r\n"
    async with _listener(leads_on % 9) as (port, heard):
        listed = OutboundPolicy(("localhost", "*.example.org"), setting="hosts")
        async with guarded_client(listed, seconds=5) as client:
            for url in (
                f"http://127.0.0.1:{port}/",
                f"http://localhost.evil.test:{port}/",
                f"http://LOCALHOST.:{port}/",
            ):
                with pytest.raises(Permanent, match="not an allowed host"):
                    await client.get(url)
            with pytest.raises(Permanent, match="not a public address"):
                await client.get(f"http://localhost:{port}/")
        assert heard == []
        async with guarded_client(
            OutboundPolicy.only(f"http://localhost:{port}/x", setting="hosts"), seconds=5
        ) as client:
            assert (await client.get(f"http://LocalHost:{port}/")).status_code == 307
        assert len(heard) == 1


async def test_documents_of_a_provider_lead_to_no_other_host() -> None:
    async with _listener(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}") as (port, heard):
        door = HttpxOidcEndpoints(
            ReferencedSecrets(), OutboundPolicy.only("https://login.example.org", setting="hosts")
        )
        for ask in (door.read(f"http://127.0.0.1:{port}/"), door.trade(f"http://127.0.0.1:{port}/", {}, client="c")):
            with pytest.raises(Transient, match="not an allowed host"):
                await ask
        assert heard == []
        named = HttpxOidcEndpoints(
            ReferencedSecrets(), OutboundPolicy.only(f"http://127.0.0.1:{port}", setting="hosts")
        )
        assert await named.read(f"http://127.0.0.1:{port}/keys") == {}


async def test_a_task_server_is_the_one_that_was_named() -> None:
    resolver = _OneHost("tes.example.org")
    with pytest.raises(OSError, match="not the configured task server"):
        await resolver.resolve("169.254.169.254.nip.test", 80)


async def test_a_peer_that_drips_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is short, and still the answer would never end."""
    stop = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        with suppress(OSError, TimeoutError):
            while not stop.is_set():
                writer.write(b" ")
                await writer.drain()
                async with asyncio.timeout(0.05):
                    await stop.wait()
        writer.close()

    class Tokens:
        def make(self, _to: str, _who: Caller) -> str:
            return "t"

    monkeypatch.setattr(peer_calls, "WHOLE", 0.5)
    there = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{there.sockets[0].getsockname()[1]}"
    calls = peer_calls.HttpxPeerCalls(cast("Any", Tokens()), OutboundPolicy(("127.0.0.1",), setting="peer_hosts"))
    async with there:
        async with asyncio.timeout(10):
            with pytest.raises(Transient, match="no response from north"):
                await calls.hello(Peer(name="north", url=url, key="k"), Caller("t", "ada"))
        stop.set()


ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "forestay"
FILES = [file for folder in (SOURCE, ROOT / "plugins" / "forestay-bpel") for file in folder.rglob("*.py")]
MAKERS = re.compile(
    r"\b(?:httpx\.(?:Async)?Client\(|AsyncHTTPTransport|aiohttp\.ClientSession\(|smtplib\.SMTP|urlopen\(|create_connection\(|open_connection\()"
)
WAYS_OUT = {
    "adapters/httpx/guarded.py": "the guarded client: callbacks, webhooks, peers, the identity provider, lineage, storage elements",
    "adapters/aiohttp/task_service.py": "task servers of the proxy: the host that was named alone, no redirects, bounded",
    "adapters/smtplib/notification_channel.py": "the mail server that the settings name",
    "adapters/httpx/site_api.py": "a site agent to its own servers",
    "adapters/kubernetes/api.py": "a site agent to the API server that its settings name",
    "adapters/slurm/controllers.py": "whether a controller listens; nothing is sent",
    "apps/doctor/certificates.py": "`forestay doctor` looks at the server's own certificate",
    "client/api/forestay_client.py": "a person's client to the servers",
    "client/api/async_client.py": "the same",
}


def test_there_is_no_other_way_out() -> None:
    """Whoever makes a connection in a new place says here why it may; apprise and OpenTelemetry make their own, to addresses of the settings."""
    relatives = {str(file).removeprefix(f"{SOURCE}/") for file in FILES if MAKERS.search(file.read_text())}
    assert relatives == set(WAYS_OUT)
    imported = re.compile(r"^(?:import|from) (?:requests|urllib3|urllib\.request|http\.client)\b", re.MULTILINE)
    assert [str(file) for file in FILES if imported.search(file.read_text())] == []
