"""Files served to other hosts: by ticket only, in parts, to few at once, and checked by whoever reads."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pilot.cached import cache_in, put, sha256_of

from forestay_pilot.cache.cache import Cache
from forestay_pilot.cache.cache_peer import PeerError, fetch_peer
from forestay_pilot.cache.cache_share import CacheShare, good_ticket, make_ticket
from forestay_pilot.cache.cache_staging import PEER, CacheStaging

NAME = "job:j-1/out put.root"
CONTENT = bytes(range(256)) * 5000


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    cache = cache_in(tmp_path / "cache", 10_000_000)
    put(cache, tmp_path / "job", NAME, CONTENT)
    return cache


@pytest.fixture
def share(cache: Cache) -> Iterator[CacheShare]:
    share = CacheShare(cache, "127.0.0.1", at_once=2)
    yield share
    share.close()


def ticket(share: CacheShare, name: str = NAME, seconds: int = 60) -> str:
    return make_ticket(share.told()["secret"], name, int(time.time()) + seconds)


def ask(share: CacheShare, name: str, shown: str | None, **headers: str) -> tuple[int, bytes]:
    """What is answered once there is room: a connection of before may take a moment to be counted as closed."""
    give_up = time.monotonic() + 20
    while True:
        result = ask_once(share, name, shown, **headers)
        if result[0] != 503 or time.monotonic() > give_up:
            return result
        time.sleep(0.05)


def ask_once(share: CacheShare, name: str, shown: str | None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(share.url).netloc, timeout=5)
    try:
        if shown is not None:
            headers["Authorization"] = f"Ticket {shown}"
        connection.request("GET", f"/file?name={quote(name, safe='')}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.ledger("P3-17")
def test_a_ticket_opens_one_file_for_a_while(share: CacheShare) -> None:
    assert ask(share, NAME, ticket(share)) == (200, CONTENT)
    for shown in (None, "", "1.2", ticket(share, "lfn:b"), ticket(share, seconds=-1), ticket(share) + "0", "x.y"):
        assert ask(share, NAME, shown) == (403, b"")
    assert ask(share, "lfn:b", ticket(share, "lfn:b")) == (404, b"")


@pytest.mark.ledger("P3-17")
@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        ("bytes=0-", 200, CONTENT),
        ("bytes=1000-", 206, CONTENT[1000:]),
        ("bytes=10-19", 206, CONTENT[10:20]),
        ("bytes=10-99999999", 206, CONTENT[10:]),
        ("bytes=99999999-", 416, b""),
        ("bytes=-5", 200, CONTENT),
    ],
)
def test_parts_are_served(share: CacheShare, asked: str, status: int, part: bytes) -> None:
    assert ask(share, NAME, ticket(share), Range=asked) == (status, part)


def test_readers_beyond_the_bound_are_sent_away_at_once(share: CacheShare) -> None:
    address = (urlsplit(share.url).hostname or "", urlsplit(share.url).port or 0)
    silent = [socket.create_connection(address) for _ in range(2)]
    try:
        end = time.monotonic() + 5
        while ask_once(share, NAME, ticket(share))[0] != 503:
            assert time.monotonic() < end, "both places are taken soon"
    finally:
        for sock in silent:
            sock.close()
    end = time.monotonic() + 5
    while ask(share, NAME, ticket(share))[0] != 200:
        assert time.monotonic() < end, "and free again"


@pytest.mark.ledger("P3-17")
def test_a_pilot_reads_from_another_hosts_cache_and_keeps_it(share: CacheShare, tmp_path: Path) -> None:
    own = cache_in(tmp_path / "other host", 10_000_000)
    staging = CacheStaging(own, None)
    peers = [
        {"kind": "peer", "url": "http://127.0.0.1:9", "ticket": "1.aa", "host": "down"},
        {"kind": "peer", "url": share.url, "ticket": ticket(share), "host": "node2"},
    ]

    def fetch() -> tuple[int, str]:
        raise AssertionError("the storage element was asked")

    fields = {"file": NAME, "sha256": sha256_of(CONTENT), "bytes": len(CONTENT), "from": peers}
    assert staging.bring(fields, str(tmp_path / "in"), fetch, "c-1", lambda: False) == PEER
    assert (tmp_path / "in").read_bytes() == CONTENT
    assert own.find(NAME) == sha256_of(CONTENT)


def test_what_is_not_the_file_is_not_taken(share: CacheShare, tmp_path: Path) -> None:
    target = tmp_path / "in"
    with pytest.raises(PeerError, match="not the requested"):
        fetch_peer(share.url, ticket(share), NAME, str(target), sha256=sha256_of(b"other"))
    with pytest.raises(PeerError, match="403"):
        fetch_peer(share.url, "1.2", NAME, str(target))
    with pytest.raises(PeerError, match="not the address"):
        fetch_peer("ftp://127.0.0.1:1", "1.2", NAME, str(target))
    assert list(tmp_path.glob("in*")) == []


def test_a_spoiled_file_is_not_served(share: CacheShare, cache: Cache) -> None:
    place = Path(cache.area.place(sha256_of(CONTENT)))
    place.chmod(0o644)
    place.write_bytes(b"spoiled")
    assert ask(share, NAME, ticket(share)) == (404, b"")


@given(name=st.text(max_size=30), other=st.text(max_size=30), shown=st.text(max_size=40))
def test_only_the_servers_can_make_tickets(name: str, other: str, shown: str) -> None:
    good = make_ticket("secret", name, 1000)
    assert good_ticket("secret", name, good, 999.0)
    assert not good_ticket("secret", name, good, 1000.0)
    assert not good_ticket("other secret", name, good, 999.0)
    assert not good_ticket("secret", name, shown, 999.0) or shown == good
    if other != name:
        assert not good_ticket("secret", other, good, 999.0)


@pytest.mark.parametrize("address", ["", "0.0.0.0", "::", "0.0.0.0:80", ":80", "host:port"])  # noqa: S104 - refused
def test_an_address_nobody_could_be_told_is_refused(cache: Cache, address: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        CacheShare(cache, address)
