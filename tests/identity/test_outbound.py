"""Callbacks go to the very address that was looked at: a name that changes its mind between two looks gains nothing."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from holdfast.adapters.httpx.notify import HttpxNotify
from holdfast.ports.errors import Permanent


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
        await HttpxNotify(("private:hook.example.org",)).post(url, {}, delivery="1")
        assert len(heard) == 1
        assert f"host: hook.example.org:{port}".encode() in heard[0].lower()
        assert looked.count("hook.example.org") == 1
        looked.clear()
        # Where the name may not be private, the same answer is refused before anything is sent.
        with pytest.raises(Permanent, match="not a public address"):
            await HttpxNotify(("hook.example.org",)).post(url, {}, delivery="2")
        assert len(heard) == 1
