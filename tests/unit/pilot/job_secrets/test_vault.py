"""What the pilot asks of Vault and makes of its answers. The server here is a stand-in; `test_real_vault.py` asks a real one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from forestay_pilot.job_secrets import vault
from forestay_pilot.job_secrets.secret_error import SecretError
from forestay_pilot.job_secrets.vault import VaultSettings, read_vault

TOKEN = "hvs.a-token-of-the-site"


class StandIn:
    """Answers as a test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.body, self.headers = 200, b"{}", {}  # type: tuple[int, bytes, dict[str, str]]
        self.pause = 0.0
        self.asked: list[tuple[str, dict[str, str]]] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand_in.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                time.sleep(stand_in.pause)
                self.send_response(stand_in.status)
                for name, value in stand_in.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(stand_in.body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def has(self, values: dict[str, Any]) -> None:
        self.status, self.body = 200, json.dumps({"data": {"data": values, "metadata": {"version": 1}}}).encode()


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    made = StandIn()
    yield made
    made.server.shutdown()
    made.server.server_close()


def settings(stand_in: StandIn, **changes: Any) -> VaultSettings:
    return VaultSettings(**{"address": stand_in.url, "token": TOKEN, **changes})


def error_of(asked: VaultSettings) -> str:
    with pytest.raises(SecretError) as caught:
        read_vault(asked, "secret/data/app")
    assert TOKEN not in str(caught.value)
    return caught.value.error


def test_the_values_of_a_path_are_read_with_the_token_of_a_file(stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    stand_in.has({"token": "x"})
    values = read_vault(settings(stand_in, token="", token_file=str(file), namespace="team"), "secret/data/a@b")
    assert values == {"token": "x"}
    path, headers = stand_in.asked[0]
    assert path == "/v1/secret/data/a%40b"
    assert headers["x-vault-token"] == TOKEN
    assert headers["x-vault-namespace"] == "team"
    for text in (b"", b"two words", b"\xff\xfe"):
        file.write_bytes(text)
        assert error_of(settings(stand_in, token="", token_file=str(file))) == "insecure"
    file.chmod(0o644)
    assert error_of(settings(stand_in, token="", token_file=str(file))) == "insecure"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, "not-found"),
        (403, "denied"),
        (400, "denied"),
        (503, "unreachable"),
        (429, "unreachable"),
        (500, "unreachable"),
    ],
)
def test_what_answers_mean(stand_in: StandIn, status: int, error: str) -> None:
    stand_in.status, stand_in.body = status, b'{"errors": ["' + TOKEN.encode() + b'"]}'
    assert error_of(settings(stand_in)) == error


def test_the_token_follows_no_redirect(stand_in: StandIn) -> None:
    elsewhere = StandIn()
    try:
        stand_in.status, stand_in.headers = 307, {"Location": f"{elsewhere.url}/v1/secret/data/app"}
        assert error_of(settings(stand_in)) == "unreachable"
        assert not elsewhere.asked
    finally:
        elsewhere.server.shutdown()
        elsewhere.server.server_close()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"data": {"token": "version 1"}}', b'{"data": {"data": null}}', b"\xff"]
)
def test_an_answer_of_another_form_is_no_secret(stand_in: StandIn, body: bytes) -> None:
    stand_in.body = body
    assert error_of(settings(stand_in)) == "not-found"


def test_an_endless_answer_is_not_read_to_its_end(stand_in: StandIn) -> None:
    stand_in.body = b"x" * (3 << 20)
    assert error_of(settings(stand_in)) == "unreachable"


def test_nobody_waits_long_for_an_answer(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "_PATIENCE", 0.2)
    stand_in.pause = 1.0
    assert error_of(settings(stand_in)) == "unreachable"


def test_no_proxy_of_the_environment_sees_the_token(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    stand_in.has({"a": "b"})
    assert read_vault(settings(stand_in), "secret/data/app") == {"a": "b"}


@pytest.mark.parametrize(
    "address",
    ["http://vault.example.org:8200", "ftp://127.0.0.1", "https://", "vault", "https://u:p@vault", "https://vault?x=1"],
)
def test_addresses_that_would_show_the_token_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"Vault is asked by|address of Vault"):
        VaultSettings(address=address, token=TOKEN).check()


def test_other_addresses_are_taken() -> None:
    for address in ("https://vault.example.org:8200", "http://127.0.0.1:8200", "http://localhost", "http://[::1]:8200"):
        VaultSettings(address=address, token=TOKEN).check()
    VaultSettings(address="http://vault.example.org", token=TOKEN, allow_http=True).check()
    for token in ("", "two words", "t\nX-Other: y", "ü"):
        with pytest.raises(ValueError, match="token"):
            VaultSettings(address="https://vault.example.org", token=token).check()
    assert TOKEN not in repr(VaultSettings(address="https://vault.example.org", token=TOKEN))
