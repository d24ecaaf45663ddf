"""A server with a certificate, which hears only those who show one of theirs, and takes a new one without a restart."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
import uvicorn
from structlog.testing import capture_logs
from structlog.typing import EventDict
from tests.system.identity.certificates import Authority
from tests.unit.apps.server.asks import problem, read, submit_one
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.httpx.guarded import certificates_with
from forestay.adapters.httpx.peer_calls import HttpxPeerCalls
from forestay.adapters.httpx.site_api import HttpxSiteApi
from forestay.adapters.private_file import write_private
from forestay.apps.config.settings import load
from forestay.apps.server.http.tls import certificate_kept, refuse_withdrawn, tls_options
from forestay.client import BadSettings, ForestayClient, Patience, Unavailable
from forestay.client.api import calls
from forestay.client.transport.settings import find_server, places
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.domain.peers.peer import Peer
from forestay.ports.errors import Permanent, PortError, Transient
from forestay.ports.peers.peer import Caller

TENANT = "default"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
async def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server that asks every client for a certificate."""
    state = tmp_path_factory.mktemp("tls")
    own = authority.certificate("server")
    async with (
        store_room("sqlite", state) as url,
        Domain(url, state).server(certificate=own, client_ca=authority.file) as running,
    ):
        yield running


def _person(server: RunningServer, verify: ssl.SSLContext, *roles: str) -> httpx.AsyncClient:
    token = server.domain.token(*roles, tenant=TENANT) if roles else None
    return http_client(server.url, token, verify=verify)


async def test_only_who_shows_a_certificate_of_the_authority_is_heard(
    server: RunningServer, authority: Authority, tmp_path: Path
) -> None:
    assert server.url.startswith("https://")
    good = authority.client(authority.certificate("ada"))
    stranger = authority.client(Authority(tmp_path, "another").certificate("ada"))
    async with _person(server, good, "viewer") as ada:
        assert (await ada.get("/v1/jobs")).status_code == 200
    async with _person(server, good) as nobody:  # a certificate is no token
        problem(await nobody.get("/v1/jobs"), 401)
    for bad in (authority.client(), stranger):
        async with _person(server, bad, "administrator") as client:
            with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
                await client.get("/v1/jobs")
    async with http_client(server.url.replace("https", "http"), verify=good) as plain:
        with pytest.raises(httpx.HTTPError):
            await plain.get("/v1/jobs")


async def test_a_pilot_shows_its_certificate_and_runs_a_job(
    server: RunningServer, authority: Authority, tmp_path: Path
) -> None:
    write_private(tmp_path / "token", server.domain.token("enrol", tenant=TENANT))
    words: list[str | Path] = [
        "--server",
        server.url,
        "--ca-file",
        authority.file,
        "--certificate",
        authority.certificate("pilot"),
    ]
    words += ["--token-file", tmp_path / "token", "--outputs", tmp_path / "out", "--work", tmp_path / "work"]
    pilot = await asyncio.create_subprocess_exec(sys.executable, "-m", "forestay_pilot", *words)
    try:
        async with _person(server, authority.client(authority.certificate("ada")), "submitter") as ada:
            job = await submit_one(ada)

            async def completed() -> bool:
                return bool((await read(ada, job))["state"] == "completed")

            await until(completed, "the job's end")
    finally:
        pilot.terminate()
        await pilot.wait()


async def test_a_renewed_certificate_is_taken_without_a_restart(server: RunningServer, authority: Authority) -> None:
    context = authority.client(authority.certificate("ada"))

    async def shown() -> object:
        port = int(server.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        wire = writer.get_extra_info("ssl_object")
        writer.close()
        del reader
        return wire.getpeercert()["serialNumber"]

    first = await shown()
    settings = server.services.components.settings
    assert settings.certificate is not None
    with capture_logs() as logs:
        await _renew(server, authority, settings.certificate, shown, first, logs)


def _halve(certificate: Path) -> None:
    whole = certificate.read_bytes()
    certificate.write_bytes(whole[: len(whole) // 2])


async def _renew(
    server: RunningServer,
    authority: Authority,
    certificate: Path,
    shown: Callable[[], Awaitable[object]],
    first: object,
    values: list[EventDict],
) -> None:
    async def waits() -> bool:
        return any(value["event"] == "the certificate cannot be reloaded" for value in values)

    async with certificate_kept(server._uvicorn.config, server.services.components.settings, every=0.05):
        _halve(certificate)
        await until(waits, "a look at half a renewal, which changes nothing")
        assert await shown() == first
        authority.certificate("server")

        async def renewed() -> bool:
            return await shown() != first

        await until(renewed, "the new certificate")


async def heard(server: RunningServer, authority: Authority, certificate: Path) -> bool:
    async with _person(server, authority.client(certificate), "viewer") as client:
        try:
            return (await client.get("/v1/jobs")).status_code == 200
        except (httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError):
            return False


async def test_who_shows_a_withdrawn_certificate_is_not_heard(tmp_path: Path) -> None:
    """From the first connection on; a new list counts without a restart, half a list changes nothing, and one past its time lets nobody in."""
    authority = Authority(tmp_path / "authority")
    own, ada, eve, mallory = (authority.certificate(name) for name in ("server", "ada", "eve", "mallory"))
    withdrawn = authority.withdraw(eve)
    known = {"certificate": own, "client_ca": authority.file, "client_crl": withdrawn}
    async with store_room("sqlite", tmp_path) as url, Domain(url, tmp_path).server(**known) as server:
        assert [await heard(server, authority, path) for path in (ada, eve, mallory)] == [True, False, True]
        with capture_logs() as logs:
            async with certificate_kept(server._uvicorn.config, server.services.components.settings, every=0.05):
                _halve(withdrawn)

                async def waits() -> bool:
                    return any(log["event"] == "the certificate cannot be reloaded" for log in logs)

                await until(waits, "a look at half a list, which changes nothing")
                assert [await heard(server, authority, path) for path in (ada, eve, mallory)] == [True, False, True]
                authority.withdraw(eve, mallory, age=0.1)

                async def gone() -> bool:
                    return not await heard(server, authority, mallory)

                await until(gone, "the new list")
                assert [await heard(server, authority, path) for path in (ada, eve)] == [True, False]
    authority.withdraw(age=1.5)
    async with store_room("sqlite", tmp_path) as url, Domain(url, tmp_path).server(**known) as server:
        assert not await heard(server, authority, ada), "nobody knows what was withdrawn since"


def test_a_list_that_is_none_is_told_at_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    bad = tmp_path / "bad.pem"
    bad.write_text("no list")
    known = {"CERTIFICATE": authority.certificate("server"), "CLIENT_CA": authority.file, "CLIENT_CRL": bad}
    settings = load({f"FORESTAY_{name}": str(path) for name, path in known.items()})
    config = uvicorn.Config(lambda _scope: None, **tls_options(settings))
    with pytest.raises(Permanent, match="not a certificate revocation list"):
        refuse_withdrawn(config, settings)
    with pytest.raises(Permanent, match="client_ca"):
        load({"FORESTAY_CERTIFICATE": str(known["CERTIFICATE"]), "FORESTAY_CLIENT_CRL": str(bad)})


def test_a_client_authority_without_a_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="certificate"):
        load({"FORESTAY_CLIENT_CA": str(tmp_path / "ca.pem")})


async def test_a_persons_client_shows_its_certificate(
    server: RunningServer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By variables, or by the user's own file; never by a project's. One whose key others can read is not shown."""
    token = server.domain.token("viewer", tenant=TENANT)
    config = tmp_path / "config.toml"
    monkeypatch.setenv("FORESTAY_CLIENT_CONFIG", str(config))

    def ask() -> object:
        with ForestayClient(server.url, token, patience=Patience(seconds=0)) as client:
            return client.send(calls.fleet())["pilots"]

    own = authority.certificate("clara")
    monkeypatch.setenv("FORESTAY_CA_FILE", str(authority.file))
    with pytest.raises(Unavailable):
        await asyncio.to_thread(ask)
    monkeypatch.setenv("FORESTAY_CLIENT_CERTIFICATE", str(own))
    assert isinstance(await asyncio.to_thread(ask), list)
    monkeypatch.delenv("FORESTAY_CLIENT_CERTIFICATE")
    config.write_text(f'certificate = "{own}"\n')
    assert isinstance(await asyncio.to_thread(ask), list)
    (tmp_path / ".forestay.toml").write_text(f'certificate = "{own}"\n')
    with pytest.raises(BadSettings, match="may only set the server"):
        find_server(None, {}, tmp_path, places({"FORESTAY_CLIENT_CONFIG": str(config)}))
    own.chmod(0o644)
    with pytest.raises(BadSettings, match="chmod 600"):
        await asyncio.to_thread(ask)


async def test_site_agents_and_peers_show_theirs(server: RunningServer, authority: Authority, tmp_path: Path) -> None:
    own = authority.certificate("agent")
    write_private(tmp_path / "token", server.domain.token("site", tenant=TENANT))

    async def demand(certificate: Path | None) -> object:
        desk = HttpxSiteApi(
            [server.url], site="hall", token_file=tmp_path / "token", ca_file=authority.file, certificate=certificate
        )
        try:
            return await desk.demand()
        finally:
            await desk.close()

    assert await demand(own)
    with pytest.raises(Transient, match="does not respond"):
        await demand(None)
    parts = server.services.components
    peer = Peer(name="north", url=server.url, key=parts.peers.tokens.public)
    allowed = OutboundPolicy(("127.0.0.1",), setting="peer_hosts")
    for certificate, words in ((own, "north answered"), (None, "no response from north")):
        calls_to = HttpxPeerCalls(parts.peers.tokens, allowed, certificates_with(authority.file, certificate))
        with pytest.raises(PortError, match=words):  # it is heard, and then told that there are no runs
            await calls_to.hello(peer, Caller(TENANT, "ada"))
    own.chmod(0o640)
    with pytest.raises(Permanent, match="chmod 600"):
        certificates_with(authority.file, own)


async def test_a_pilot_does_not_show_a_key_that_others_can_read(authority: Authority, tmp_path: Path) -> None:
    own = authority.certificate("open")
    own.chmod(0o644)
    write_private(tmp_path / "token", "t")
    words: list[str | Path] = [
        "--server",
        "https://127.0.0.1:9",
        "--certificate",
        own,
        "--token-file",
        tmp_path / "token",
    ]
    words += ["--outputs", tmp_path / "out", "--work", tmp_path / "work"]
    pilot = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "forestay_pilot", *words, stderr=asyncio.subprocess.PIPE
    )
    _, data = await asyncio.wait_for(pilot.communicate(), 60)
    assert pilot.returncode
    assert b"chmod 600" in data
