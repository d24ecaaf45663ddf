"""Which host is asked, how often, and what a host that fails costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.adapters.opensearch_host import BadHost

from forestay.adapters.opensearch import hosts as hosts_module
from forestay.adapters.opensearch.hosts import Hosts
from forestay.ports.errors import Permanent, Transient

LINES = b"{}\n"


@asynccontextmanager
async def asking(*urls: str, patience: float = 5.0) -> AsyncIterator[Hosts]:
    hosts = Hosts(urls, timeout=patience)
    try:
        yield hosts
    finally:
        await hosts.close()


async def test_a_write_is_sent_once_even_if_the_connection_closes_without_an_answer() -> None:
    async with BadHost() as host, BadHost() as two, asking(host.url, two.url) as hosts:
        host.closes = two.closes = True
        with pytest.raises(Transient):
            await hosts.write("/jobs/_bulk", LINES, {})
        assert len(host.requests) + len(two.requests) == 1


async def test_a_write_on_a_kept_connection_is_not_repeated_either() -> None:
    async with BadHost() as host, asking(host.url) as hosts:
        await hosts.write("/jobs/_bulk", LINES, {})
        host.closes = True
        with pytest.raises(Transient):
            await hosts.write("/jobs/_bulk", LINES, {})
        assert len(host.requests) == 2


async def test_a_write_that_timed_out_is_not_repeated() -> None:
    async with BadHost() as host, BadHost() as two, asking(host.url, two.url, patience=1.5) as hosts:
        host.silent = two.silent = True
        with pytest.raises(Transient):
            await hosts.write("/jobs/_bulk", LINES, {})
        assert len(host.requests) + len(two.requests) == 1


async def test_a_read_goes_on_to_another_host() -> None:
    async with BadHost() as host, BadHost(answer={"well": 1}) as two, asking(host.url, two.url) as hosts:
        host.closes = True
        for _ in range(4):
            assert await hosts.read("/jobs/_search", {}, params={}) == {"well": 1}
        assert len(host.requests) <= 1


async def test_a_host_without_a_cluster_manager_is_left_for_another() -> None:
    async with BadHost(503) as host, BadHost(answer={"well": 1}) as two, asking(host.url, two.url) as hosts:
        assert await hosts.read("/jobs/_search", {}, params={}) == {"well": 1}
        assert await hosts.read("/jobs/_search", {}, params={}) == {"well": 1}


async def test_a_read_that_no_host_answers_is_transient() -> None:
    async with BadHost() as host, BadHost() as two, asking(host.url, two.url) as hosts:
        host.closes = two.closes = True
        with pytest.raises(Transient):
            await hosts.read("/jobs/_search", {}, params={})


async def test_reads_are_repeated_for_a_tenth_of_all_calls_and_no_more() -> None:
    async with BadHost(503) as host, BadHost(503) as two, asking(host.url, two.url) as hosts:
        for _ in range(200):
            with pytest.raises(Transient):
                await hosts.read("/jobs/_search", {}, params={})
        asked = len(host.requests) + len(two.requests)
        assert 220 <= asked <= 1.12 * 200 + 20


async def test_a_dead_host_costs_one_write_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "_FIRST_REST", 0.01)
    async with BadHost() as dead, BadHost() as host, BadHost() as two, asking(dead.url, host.url, two.url) as hosts:
        await dead.leave()
        lost = 0
        for _ in range(60):
            try:
                await hosts.write("/jobs/_bulk", LINES, {})
            except Transient:
                lost += 1
            await asyncio.sleep(0.002)
        assert lost == 1
        assert len(host.requests) + len(two.requests) == 59


async def test_a_host_comes_back_by_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "_FIRST_REST", 0.01)
    async with BadHost() as host, BadHost() as two, asking(host.url, two.url) as hosts:
        await host.leave()
        for _ in range(2):
            await hosts.read("/x", params={})
        await host.listen()
        async with asyncio.timeout(20):
            while not host.requests:
                await hosts.write("/jobs/_bulk", LINES, {})
                await asyncio.sleep(0.005)
        assert host.probed.is_set()


async def test_when_all_hosts_failed_they_are_still_asked_in_turn() -> None:
    async with BadHost() as host, BadHost() as two, asking(host.url, two.url) as hosts:
        host.closes = two.closes = True
        for _ in range(4):
            with pytest.raises(Transient):
                await hosts.write("/jobs/_bulk", LINES, {})
        assert len(host.requests) == len(two.requests) == 2


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, Permanent, "mapper_parsing_exception"),
        (400, Transient, "index_closed_exception"),
        (404, Transient, "index_not_found_exception"),
        (413, Permanent, "content_too_large"),
        (401, Transient, "security_exception"),
        (403, Transient, "security_exception"),
        (403, Transient, "cluster_block_exception"),
        (429, Transient, "rejected_execution_exception"),
        (500, Transient, "something_exception"),
        (503, Transient, "cluster_block_exception"),
    ],
)
async def test_each_status_says_whether_trying_again_can_help(status: int, kind: type[Exception], error: str) -> None:
    answer = {"error": {"type": error, "reason": "because"}, "status": status}
    async with BadHost(status, answer) as host, asking(host.url) as hosts:
        with pytest.raises(kind, match=error):
            await hosts.write("/jobs/_bulk", LINES, {})
        with pytest.raises(kind, match=error):
            await hosts.read("/jobs/_search", {}, params={})


@pytest.mark.parametrize("url", ["ftp://somewhere", "http://", "http://:9200"])
def test_a_host_must_be_written_well(url: str) -> None:
    with pytest.raises(Permanent):
        Hosts([url], timeout=1)


def test_a_password_shows_nowhere() -> None:
    hosts = Hosts(["https://reader:s3cret@search.example:9200"], timeout=1)
    assert "s3cret" not in repr(hosts._hosts[0].connection)


async def test_the_set_up_waits_longer_than_a_job_does() -> None:
    async with BadHost() as host, asking(host.url, patience=0.2) as hosts:
        host.silent = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.8):
                await hosts.read("/jobs-000001", {}, method="PUT", params={}, checking_setup=True)
        with pytest.raises(Transient):
            await hosts.read("/jobs/_search", {}, params={})
