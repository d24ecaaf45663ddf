"""Inputs over HTTPS, and addresses that a pilot does not call whatever it is told."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.link.test_tls import certificate

from forestay_pilot.staging.staging import StagingError, stage_in

__all__ = ["certificate"]
CONTENT = b"over a safe line\n"


class _Files(BaseHTTPRequestHandler):
    asked: list[str]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        pass

    def do_GET(self) -> None:
        self.asked.append(self.headers["Host"] + self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def secure_files(certificate: Path, asked: list[str]) -> Iterator[int]:
    """A web server that speaks TLS only; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Files,), {"asked": asked})) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def bring(folder: Path, source: str, ca_file: Path | None = None, **fields: Any) -> None:
    stage_in(
        [{"name": "in.txt", "source": source, **fields}],
        str(folder),
        sequential=False,
        stopped=lambda: False,
        ca_file=str(ca_file) if ca_file else None,
    )


@pytest.mark.ledger("P0-08")
def test_an_input_comes_by_https(tmp_path: Path, secure_files: int, certificate: Path, asked: list[str]) -> None:
    bring(tmp_path, f"https://127.0.0.1:{secure_files}/f?v=1", certificate, private=True, bytes=len(CONTENT))
    assert (tmp_path / "in.txt").read_bytes() == CONTENT
    assert asked == [f"127.0.0.1:{secure_files}/f?v=1"]


def test_the_certificates_of_the_system_are_used(
    tmp_path: Path, secure_files: int, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an operator extends them for every program of a host."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    bring(tmp_path, f"https://127.0.0.1:{secure_files}/f", private=True)
    assert (tmp_path / "in.txt").read_bytes() == CONTENT


@pytest.mark.ledger("P0-09")
def test_nothing_is_taken_from_a_server_that_nobody_vouches_for(
    tmp_path: Path, secure_files: int, asked: list[str]
) -> None:
    with pytest.raises(StagingError, match="certificate verify failed") as failed:
        bring(tmp_path, f"https://127.0.0.1:{secure_files}/f", private=True)
    assert failed.value.reason == "transfer"
    assert asked == []
    assert list(tmp_path.glob("in.txt")) == []


def test_a_name_that_the_certificate_does_not_have_is_refused(
    tmp_path: Path, secure_files: int, certificate: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", secure_files))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: results)
    with pytest.raises(StagingError, match="certificate verify failed"):
        bring(tmp_path, f"https://data.example.org:{secure_files}/f", certificate, private=True)
    assert asked == []


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "100.64.0.1", "::1", "fd00::1", "fe80::1", "::ffff:127.0.0.1"],
)  # fmt: skip
def test_a_name_that_leads_to_a_private_address_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, address: str
) -> None:
    """Also if one of several is public: any of them might be the one that is called."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def found(*_args: Any, **_more: Any) -> list[Any]:
        public = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", 443))
        return [public, (family, socket.SOCK_STREAM, 6, "", (address, 443))]

    def no_call(*_args: Any, **_more: Any) -> Any:
        raise AssertionError("it was called")

    monkeypatch.setattr(socket, "getaddrinfo", found)
    monkeypatch.setattr(socket, "create_connection", no_call)
    with pytest.raises(StagingError, match="which is not a public address") as failed:
        bring(tmp_path, f"{scheme}://data.example.org/f", private=False)
    assert failed.value.reason == "policy"


def test_the_very_address_that_was_checked_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure_files: int
) -> None:
    """A name that stands for something else a moment later changes nothing: it is looked up once."""
    asked: list[str] = []
    called: list[Any] = []

    def found(host: str, *_args: Any, **_more: Any) -> list[Any]:
        asked.append(host)
        address = "93.184.215.14" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, secure_files))]

    def call(address: Any, *_args: Any, **_more: Any) -> Any:
        called.append(address)
        raise OSError("nobody is there")

    monkeypatch.setattr(socket, "getaddrinfo", found)
    monkeypatch.setattr(socket, "create_connection", call)
    with pytest.raises(StagingError, match=r"nobody is there|not a public address"):
        bring(tmp_path, f"http://data.example.org:{secure_files}/f", private=False)
    assert {address for address, _ in called} == {"93.184.215.14"}
