"""Stores that a test may kill and fill: started by `scripts/servers` in a folder of the test's own, on small disks if it says so."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests import servers
from tests.system.chaos.processes import free_port

OPENSEARCH, POSTGRES = "opensearch", "postgres"
NODE = "own"
"""The name of the cluster of one node."""
PIECE = b"\0" * (1 << 16)


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system of a fixed size."""

    place: Path
    size: int
    """In bytes."""

    @property
    def _filler(self) -> Path:
        return self.place / "filler"

    def free(self) -> int:
        result = os.statvfs(self.place)
        return result.f_bavail * result.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Write until so many bytes are left; none: until the disk refuses."""
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while (left := self.free() - leave) > 0 or not leave:
                file.write(PIECE[: left or len(PIECE)])

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class OwnServers:
    """Servers of one test."""

    folder: Path
    disks: dict[str, Disk]
    ports: dict[str, int]

    def order(self, *words: str) -> str:
        """Give `scripts/servers` an order about these."""
        known = os.environ | {"FORESTAY_SERVERS_DIR": str(self.folder)}
        return subprocess.run([servers.SCRIPT, *words], check=True, text=True, stdout=subprocess.PIPE, env=known).stdout

    def start(self, kind: str) -> None:
        named = ("--name", NODE, "--quick", "--heap", "384m") if kind == OPENSEARCH else ()
        self.order("start", kind, *named, "--port", str(self.ports[kind]))

    async def kill(self, kind: str) -> None:
        """kill -9 of the server itself."""
        await asyncio.to_thread(self.order, "kill9", kind, *_named(kind))

    async def launch(self, kind: str) -> None:
        """What a supervisor does: start again what is dead, and wait until it answers."""
        await asyncio.to_thread(self.order, "launch", kind, *_named(kind))

    @property
    def opensearch(self) -> str:
        return f"127.0.0.1:{self.ports[OPENSEARCH]}"

    @property
    def postgres(self) -> str:
        return f"postgresql://forestay@127.0.0.1:{self.ports[POSTGRES]}/forestay"

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """A word with the OpenSearch node past Forestay."""
        async with httpx.AsyncClient(base_url=f"http://{self.opensearch}", timeout=120, trust_env=False) as client:
            answer = await client.request(method, path, json=body)
        return answer.raise_for_status().json()


def _named(kind: str) -> tuple[str, ...]:
    return ("--name", NODE) if kind == OPENSEARCH else ()


@contextmanager
def own_servers(*kinds: str, disk: int = 0) -> Iterator[OwnServers]:
    """Start them; with a size each has its data on a disk of so many bytes, which takes root.

    FORESTAY_FAULT_SERVERS names a folder whose servers are left running at the end, and found there the next time.
    """
    with ExitStack() as after:
        chosen_folder = os.environ.get("FORESTAY_FAULT_SERVERS")
        folder = Path(
            chosen_folder
            or after.enter_context(tempfile.TemporaryDirectory(prefix="forestay-stores-", ignore_cleanup_errors=True))
        )
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)  # started by root, they run as nobody
        places = {OPENSEARCH: folder / OPENSEARCH / NODE / "n1" / "data", POSTGRES: folder / POSTGRES}
        disks = {kind: Disk(places[kind], disk) for kind in kinds if disk}
        for other_disk in disks.values():
            if other_disk.place.is_mount():
                other_disk.empty()
            elif chosen_folder:
                _mount(other_disk)
            else:
                after.enter_context(small_disk(other_disk.place, other_disk.size))
        own = OwnServers(folder, disks, {kind: _port(kind, places[kind]) for kind in kinds})
        if not chosen_folder:
            after.callback(own.order, "stop")
        for kind in kinds:
            own.start(kind)
        yield own


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Disk]:
    disk = Disk(place, size)
    _mount(disk)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def _mount(disk: Disk) -> None:
    disk.place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk.size}", "forestay", str(disk.place)], check=True)


def _port(kind: str, place: Path) -> int:
    """The one it had, or one that is free, and for OpenSearch the one beside it that its nodes speak by."""
    known = (place.parents[1] if kind == OPENSEARCH else place) / "port"
    if known.exists():
        return int(known.read_text())
    while True:
        port = free_port()
        if kind != OPENSEARCH or port < 65_000:
            return port
