"""Caches of real pilots at a real server: outputs found by the jobs that read them, neighbours, other hosts."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.apps.server.asks import read, submit_one
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.store_room import store_room

pytestmark = pytest.mark.pair  # it kills processes

SPACE = 10_000_000
MEMORY = 1_000_000
STAGING = {"staging_hosts": ("127.0.0.1",)}
LOOK = 'stat -c "%a %i %s" in > about; sha256sum < in >> about'
"""What a job sees of its input: mode, inode, size, digest."""


@pytest.fixture(scope="module")
async def quick(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server whose pilots send a heartbeat every second."""
    state = tmp_path_factory.mktemp("caches")
    async with store_room("sqlite", state) as url, Domain(url, state, STAGING).server(lease=3) as running:
        yield running


@dataclass(eq=False)
class Site:
    """A server, pilots with caches, and somebody who submits jobs."""

    server: RunningServer
    running: Processes
    tenant: str
    root: Path
    logs: dict[Started, Path] = field(default_factory=dict)

    def pilot(self, host: str, gpus: int, *, cache: str = "cache", **options: str) -> Started:
        """A pilot that alone gets the jobs for so many accelerators: it has the less memory, the more of them there are."""
        log = self.running.logs / f"pilot-{len(self.running.started)}.log"
        at = cast("Started", self.server)
        fields: dict[str, Any] = {
            "cache": str(self.root / cache),
            "cache_space": str(SPACE),
            "cache_keep": "0",
            **options,
        }
        fields |= {"gpus": str(gpus), "memory": str(MEMORY - gpus), "host": host, "claim_wait": "1"}
        started = self.running.pilot(self.tenant, at, **fields)
        self.logs[started] = log
        return started

    async def run(self, command: str, gpus: int, **spec: Any) -> dict[str, Any]:
        """Run a job on the pilot with so many accelerators; its end."""
        job = await self.submit(command, gpus, **spec)
        return await self.ended(job)

    async def submit(self, command: str, gpus: int, **spec: Any) -> str:
        ada = self.server.person("submitter", tenant=self.tenant)
        resources = {"cpus": 1, "gpus": gpus, "memory": MEMORY - gpus}
        return await submit_one(ada, command=["/bin/sh", "-c", command], resources=resources, **spec)

    async def ended(self, job: str) -> dict[str, Any]:
        ada = self.server.person("viewer", tenant=self.tenant)

        async def over() -> dict[str, Any] | None:
            document = await read(ada, job)
            return document if document["state"] not in ("available", "running") else None

        document: dict[str, Any] = await until(over, f"the end of job {job}")
        assert document["state"] == "completed", document
        return document

    def output(self, job: str, name: str) -> Path:
        (path,) = self.running.logs.glob(f"outputs/{self.tenant}/{job}/*/{name}")
        return path

    async def look(self, gpus: int, source: str, **fields: Any) -> list[str]:
        """Run a job that looks at its input: mode, inode, size and digest."""
        inputs = [{"name": "in", "source": source, **fields}]
        job = (await self.run(LOOK, gpus, inputs=inputs, outputs=["about"]))["id"]
        return self.output(job, "about").read_text().split()[:4]

    def inodes(self, cache: str = "cache") -> dict[Path, int]:
        return {path: path.stat().st_ino for path in (self.root / cache).glob("area-*/files/*")}

    async def said(self, pilot: Started, words: str, many: int = 1) -> list[str]:
        """What a pilot has written to its log, once it has."""

        async def there() -> list[str]:
            results = re.findall(words, self.logs[pilot].read_text())
            return results if len(results) >= many else []

        lines: list[str] = await until(there, f"{words!r} in a pilot's log")
        return lines


@pytest.fixture
async def site(quick: RunningServer, tenant: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with processes(quick.domain, tmp_path) as running:
        yield Site(quick, running, tenant, tmp_path)


class _Files(BaseHTTPRequestHandler):
    content = b""
    asked: list[str]
    hold: threading.Event

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        pass

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.hold.wait(20)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)


@contextmanager
def storage(content: bytes) -> Iterator[tuple[str, list[str], threading.Event]]:
    """A storage element: its address, what was asked of it, and an event without which it does not answer."""
    asked: list[str] = []
    hold = threading.Event()
    handler = type("Bound", (_Files,), {"content": content, "asked": asked, "hold": hold})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", asked, hold
        hold.set()
        server.shutdown()
        thread.join()


async def produce(site: Site, gpus: int, size: int = 1000, letter: str = "x") -> tuple[str, str]:
    """A file made by a job: its source for other jobs, its digest. Where it was committed, it is gone since."""
    command = f"head -c {size} /dev/zero | tr '\\0' {letter} > out"
    job = (await site.run(command, gpus, outputs=["out"]))["id"]
    os.unlink(site.output(job, "out"))
    return f"job:{job}/out", hashlib.sha256(letter.encode() * size).hexdigest()


@pytest.mark.ledger("P3-07")
async def test_a_job_finds_what_another_made_in_the_cache(site: Site) -> None:
    site.pilot("node1", 1)
    source, digest = await produce(site, 1)
    mode, inode, size, text = await site.look(1, source)
    assert (mode, size, text) == ("444", "1000", digest), "it was nowhere else any more"
    assert int(inode) in site.inodes().values()


@pytest.mark.ledger("P3-07")
async def test_a_real_pilot_keeps_to_its_space(site: Site) -> None:
    """MaxSpace 10.1 MB, MinThreshold 4 MB: three files of 2 MB stay, and the least recently used one goes."""
    site.pilot("node1", 1, cache_space="10100000", cache_keep="4000000")
    made = [await produce(site, 1, 2_000_000, letter) for letter in "abc"]
    await site.look(1, made[0][0])
    made.append(await produce(site, 1, 2_000_000, "d"))

    async def kept() -> bool:
        names = {path.name for path in site.inodes()}
        return {digest for _, digest in made} & names == {made[0][1], made[2][1], made[3][1]}

    await until(kept, "b, used the longest time ago, to go")
    sizes = [path.stat().st_size for path in site.inodes()]
    assert sum(sizes) <= 6_100_000


@pytest.mark.ledger("P3-08", "P3-09", "P3-10")
async def test_pilots_of_a_host_share_by_hard_links(site: Site) -> None:
    first = site.pilot("node1", 1)
    source, digest = await produce(site, 1)
    second = site.pilot("node1", 2)
    await site.said(second, "room for 20000000 bytes now: 2 pilots on this host")
    await site.said(first, "room for 20000000 bytes now: 2 pilots on this host")

    async def linked() -> bool:
        links = [inode for path, inode in site.inodes().items() if path.name == digest]
        return len(links) == 2 and len(set(links)) == 1

    await until(linked, "the second pilot's hard link to the first one's file")
    first.kill()
    await site.said(second, "room for 10000000 bytes now: 1 pilots on this host")
    mode, _, _, text = await site.look(2, source)
    assert (mode, text) == ("444", digest), "the file lives until its last link goes"


@pytest.mark.ledger("P3-10")
async def test_a_neighbour_that_cannot_be_reached_is_taken_as_dead(site: Site) -> None:
    """Its process is stopped, its folder gone: the servers still believe in it for a while."""
    first = site.pilot("node1", 1)
    second = site.pilot("node1", 2, cache="elsewhere")
    await site.said(first, "2 pilots on this host")
    os.kill(second.process.pid, signal.SIGSTOP)
    (area,) = (site.root / "elsewhere").glob("area-*")
    area.rename(site.root / "gone")
    await site.said(first, "can no longer be reached; the neighbour is considered dead")
    await site.said(first, "room for 10000000 bytes now: 1 pilots on this host")
    os.kill(second.process.pid, signal.SIGCONT)


@pytest.mark.ledger("P3-08")
async def test_the_jobs_of_four_pilots_make_one_transfer(site: Site) -> None:
    content = os.urandom(300_000)
    digest = hashlib.sha256(content).hexdigest()
    with storage(content) as (address, asked, answer):
        for pilot in [site.pilot("node1", gpus) for gpus in (1, 2, 3, 4)]:
            # A pilot looks for a file only with the neighbours that the servers have named to it.
            await site.said(pilot, "4 pilots on this host")
        inputs = [{"name": "in", "source": address, "sha256": digest}]
        jobs = [await site.submit(LOOK, gpus, inputs=inputs, outputs=["about"]) for gpus in (1, 2, 3, 4)]

        async def all_wait() -> bool:
            ada = site.server.person("viewer", tenant=site.tenant)
            return all([(await read(ada, job))["state"] == "running" for job in jobs]) and bool(asked)

        await until(all_wait, "all four jobs to stage")
        answer.set()
        seen = [site.output((await site.ended(job))["id"], "about").read_text().split() for job in jobs]
    assert len(asked) == 1, "one file came over the wire"
    assert {names[1] for names in seen} == {seen[0][1]}, "and is one file on the disk"
    assert {names[3] for names in seen} == {digest}


async def test_a_spoiled_file_is_not_given_to_the_next_job(site: Site) -> None:
    content = b"as it was"
    digest = hashlib.sha256(content).hexdigest()
    with storage(content) as (address, asked, answer):
        answer.set()
        site.pilot("node1", 1)
        fields = {"name": "in", "source": address, "sha256": digest}
        await site.run("chmod 644 in && echo spoiled > in", 1, inputs=[fields])
        assert (await site.look(1, address, sha256=digest))[3] == digest
        assert len(asked) == 2


async def test_a_new_pilot_takes_over_what_a_killed_one_left(site: Site) -> None:
    first = site.pilot("node1", 1)
    source, digest = await produce(site, 1)

    async def kept() -> bool:
        return bool(site.inodes())

    await until(kept, "the pilot to hear of the commit: only then the file is in its cache")
    first.kill()
    site.pilot("node1", 2)
    assert (await site.look(2, source))[3] == digest
    areas = list((site.root / "cache").glob("area-*"))
    assert len(areas) == 1


async def test_caches_of_one_pilot_alone_are_not_shared(site: Site) -> None:
    """The paper's C2."""
    site.pilot("node1", 1, cache_scope="pilot")
    site.pilot("node1", 2, cache_scope="pilot")
    content = b"twice"
    digest = hashlib.sha256(content).hexdigest()
    with storage(content) as (address, asked, answer):
        answer.set()
        for gpus in (1, 2, 1, 2):
            assert (await site.look(gpus, address, sha256=digest))[3] == digest
        assert len(asked) == 2


async def known_files(site: Site, host: str) -> dict[str, set[str]]:
    """What the server believes of each pilot of a host."""
    pilots = await site.server.services.components.pilots.find_pilots(tenant=site.tenant)
    holds = site.server.services.caches.holds
    return {pilot.id: {str(name) for name in holds(pilot.id)} for pilot in pilots if pilot.host == host}


@pytest.mark.ledger("P3-08")
async def test_the_server_knows_what_is_cached_and_what_is_gone(site: Site) -> None:
    site.pilot("node1", 1, cache_space="3000000")
    source, _ = await produce(site, 1, 2_000_000, "a")

    async def known() -> bool:
        return any(source in files for files in (await known_files(site, "node1")).values())

    await until(known, "the server to hear of the file")
    other, _ = await produce(site, 1, 2_000_000, "b")

    async def replaced() -> bool:
        (files,) = (await known_files(site, "node1")).values()
        return other in files and source not in files

    await until(replaced, "the server to hear that the file is gone")


def listening(process: Started) -> set[int]:
    """The ports at which a process and what it started can be called."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                sockets[f"socket:[{words[9]}]"] = int(words[1].rpartition(":")[2], 16)
    ports = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == process.process.pid:
                ports |= {sockets.get(os.readlink(path), 0) for path in (folder / "fd").iterdir()}
        except (OSError, ProcessLookupError):
            continue
    return ports - {0}


@pytest.mark.ledger("P3-17", "P3-01")
async def test_a_file_comes_from_another_host_of_the_site(site: Site) -> None:
    """Two hosts, by their names and folders; what the first one's job made is nowhere else."""
    first = site.pilot("node1", 1, cache="one", share="127.0.0.1")
    second = site.pilot("node2", 2, cache="two")
    source, digest = await produce(site, 1, 3_000_000)
    assert (await site.look(2, source))[2:] == ["3000000", digest]
    assert len(listening(first)) == 1
    assert listening(second) == set(), "a pilot that shares with no other host cannot be called"

    async def kept() -> bool:
        return digest in {path.name for path in site.inodes("two")}

    await until(kept, "the second host to keep it")
    assert not set(site.inodes("one").values()) & set(site.inodes("two").values())


@pytest.mark.slow
@pytest.mark.ledger("P3-17")
async def test_a_dead_peer_costs_a_moment_and_not_the_job(site: Site) -> None:
    content = os.urandom(100_000)
    digest = hashlib.sha256(content).hexdigest()
    with storage(content) as (address, asked, answer):
        answer.set()
        first = site.pilot("node1", 1, cache="one", share="127.0.0.1")
        site.pilot("node2", 2, cache="two")
        assert (await site.look(1, address, sha256=digest))[3] == digest
        assert (await site.look(2, address, sha256=digest))[3] == digest
        assert len(asked) == 1
        site.pilot("node3", 3, cache="three")
        os.kill(first.process.pid, signal.SIGSTOP)
        assert (await site.look(3, address, sha256=digest))[3] == digest
        os.kill(first.process.pid, signal.SIGCONT)
        assert len(asked) <= 2
