"""`forestay doctor`: what is missing is found, named, and comes with what to do."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import resource
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forestay.apps import entry
from forestay.apps.compose.stores import inspect_store, open_stores
from forestay.apps.config.settings import Settings
from forestay.apps.doctor import GOOD, MISSING, NOTE, CheckResult, examine, machine
from forestay.ports.errors import PortError
from forestay.services.pilots.reconciler_registry import FORGET, SILENT, ReconcilerRegistry, reconcilers_known


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing is set or installed."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_DIRS", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name in [value for value in os.environ if value.startswith("FORESTAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)


def found(state: Path) -> dict[str, CheckResult]:
    return {result.about: result for result in examine(state)}


def test_a_new_machine_lacks_nothing_that_the_first_start_does_not_make(tmp_path: Path) -> None:
    results = found(tmp_path / "state")
    assert (results["python"].state, results["state"].state) == (GOOD, GOOD)
    assert (results["key"].state, results["server"].state, results["temporal"].state) == (NOTE, NOTE, NOTE)
    assert "forestay dev" in results["server"].remedy
    assert "FORESTAY_TEMPORAL_PROGRAM" in results["temporal"].remedy


def test_temporal_is_found_or_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "temporal"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert found(tmp_path)["temporal"] == CheckResult("temporal", GOOD, f"{program} (the path)")
    monkeypatch.setenv("FORESTAY_TEMPORAL_PROGRAM", str(tmp_path / "nothing"))
    assert found(tmp_path)["temporal"].state == MISSING
    monkeypatch.setenv("FORESTAY_TEMPORAL_PROGRAM", "none")
    assert found(tmp_path)["temporal"].state == NOTE
    monkeypatch.setenv("FORESTAY_TEMPORAL", "127.0.0.1:9")
    assert found(tmp_path)["temporal"].state == MISSING


def test_what_is_wrong_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "signing-key"
    key.write_text("k" * 64)
    key.chmod(0o644)
    assert found(tmp_path)["key"] == CheckResult(
        "key", MISSING, f"{key} can be read by others; it signs every token", f"chmod 600 {key}"
    )
    (tmp_path / "file").touch()
    assert found(tmp_path / "file" / "state")["state"].state == MISSING
    monkeypatch.setenv("FORESTAY_LEASE", "soon")
    assert found(tmp_path)["settings"].state == MISSING


def test_a_server_that_is_away_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORESTAY_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("FORESTAY_TOKEN", "some-token")
    result = found(tmp_path)["server"]
    assert result.state == NOTE
    assert "http://127.0.0.1:9" in result.words


def test_exit_code_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = CliRunner().invoke(entry.app, ["doctor", "--state", str(tmp_path)])
    assert good.exit_code == 0
    assert "Nothing is missing" in good.stderr
    monkeypatch.setenv("FORESTAY_TEMPORAL", "127.0.0.1:9")
    bad = CliRunner().invoke(entry.app, ["doctor", "--state", str(tmp_path), "--json"])
    assert bad.exit_code == 1
    assert MISSING in {finding["state"] for finding in json.loads(bad.stdout)["findings"]}
    assert bad.stderr == ""


def test_secrets_are_there_and_for_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, config = tmp_path / "secret", tmp_path / "forestay.toml"
    config.write_text(
        f"""store = "postgresql://forestay:word@127.0.0.1:9/x"
attachments = "{tmp_path / "none"}"
[[storage]]
name = "lake"
kind = "s3"
url = "http://127.0.0.1:9/bucket"
access_key = "env:LAKE_KEY"
secret_key = "file:{secret}"
"""
    )
    monkeypatch.setenv("FORESTAY_CONFIG", str(config))

    def missing() -> list[str]:
        return [result.words for result in examine(tmp_path) if result.state == MISSING]

    words = missing()
    assert "the variable LAKE_KEY is not set" in words
    assert f"{secret} cannot be read" in words
    assert f"{config} contains the store's password and can be read by others" in words
    assert f"{tmp_path / 'none'} is not a folder" in words
    assert not any("forestay:word" in word or "word@" in word for word in words)
    secret.write_text("s")
    assert f"{secret} can be read by others" in missing()
    secret.chmod(0o600)
    config.chmod(0o600)
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("LAKE_KEY", "k")
    assert {name.split(":")[0] for name in missing()} == {"postgresql", "http"}


def test_a_variable_that_nobody_reads_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORESTAY_STROE", "sqlite:///x")
    (result,) = [check_result for check_result in examine(tmp_path) if "not a known setting" in check_result.words]
    assert "FORESTAY_STORE" in result.remedy


class _Clock:
    def __init__(self) -> None:
        self.at = 1_000_000_000_000

    def now(self) -> int:
        return self.at


def test_reconcilers_are_heard_of_then_silent_then_forgotten(tmp_path: Path) -> None:
    clock = _Clock()

    async def walk() -> None:
        stores = open_stores(f"sqlite:///{tmp_path / 'forestay.db'}")
        await stores.jobs.open()
        registry, other = (ReconcilerRegistry(stores.documents, clock, name, "0.1.0") for name in ("one", "other"))  # type: ignore[arg-type]
        await registry.note()
        clock.at += 1000 * SILENT + 1
        await other.note()
        assert [(word.name, word.silent(clock.now())) for word in await reconcilers_known(stores.documents)] == [
            ("other", False),
            ("one", True),
        ]
        clock.at += 1000 * (FORGET - SILENT)
        await other.note()
        assert [word.name for word in await reconcilers_known(stores.documents)] == ["other"]
        await stores.jobs.close()

    asyncio.run(walk())


def test_keys_and_certificates_in_files_are_found_wherever_settings_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-subj", "/CN=x", "-days", "3", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    key.chmod(0o644)
    provider = {"issuer": "https://127.0.0.1:9", "audience": "x", "tenant": "physics", "ca": str(certificate)}
    monkeypatch.setenv("FORESTAY_OIDC", json.dumps(provider | {"client": "pages", "client_secret": "env:NOT_SET"}))
    monkeypatch.setenv("FORESTAY_PEER_KEY", str(key))
    results = found(tmp_path)
    assert results["oidc client_secret"].words == "the variable NOT_SET is not set"
    assert results["peer_key"].remedy == f"chmod 600 {key}"
    assert (results["oidc ca"].state, results["oidc ca"].remedy) == (NOTE, "Renew it.")
    assert "127.0.0.1:9 cannot be checked" in results["certificate"].words
    key.chmod(0o600)
    assert "peer_key" not in found(tmp_path)


def test_the_password_of_the_store_is_used_and_not_told(tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def door(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async def walk() -> str:
        listening = await asyncio.start_server(door, "127.0.0.1", 0)
        async with listening:
            port = listening.sockets[0].getsockname()[1]
            with pytest.raises(PortError) as refused:
                await inspect_store(f"opensearch+http://ada:p%40ss@127.0.0.1:{port}/jobs")
        return str(refused.value)

    text = asyncio.run(walk())
    wanted = base64.b64encode(b"ada:p@ss")
    assert any(wanted in data for data in heard), heard
    assert "p@ss" not in text
    assert "p%40ss" not in text


@pytest.mark.finding("F-F2")
def test_the_limit_of_open_files_is_told_as_pilots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (65_536, 65_536))
    (fleet,) = machine.open_files(Settings(state=tmp_path, store="postgresql://db/forestay"))
    assert (fleet.state, fleet.words) == (NOTE, "at most 65,536: enough for about 18,512 pilots at a server")
    assert "262,144" in fleet.remedy
    (laptop,) = machine.open_files(Settings(state=tmp_path))
    assert laptop.state == GOOD
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (262_144, 262_144))
    (enough,) = machine.open_files(Settings(state=tmp_path, store="postgresql://db/forestay"))
    assert enough.state == GOOD


@pytest.mark.finding("F-D17")
def test_without_a_server_not_everything_is_called_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORESTAY_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("FORESTAY_TOKEN", "some-token")
    ended = CliRunner().invoke(entry.app, ["doctor", "--state", str(tmp_path)])
    assert ended.exit_code == 0, "it checks this machine, and servers may be stopped"
    assert "Nothing is missing on this machine, but no server answered" in ended.stderr
