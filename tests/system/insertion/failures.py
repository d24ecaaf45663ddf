"""Failures of the infrastructure that a flow meets on a Slurm of the test's own. The flow is the same in all of them; what differs is the program that it calls,
and what happens to machines and daemons while it runs. Each is a context around the run of the flow.
"""

from __future__ import annotations

import asyncio
import http.server
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.live.own_slurm import OwnSlurm
from tests.system.insertion.programs import fetching, greedy, stuck_on
from tests.system.insertion.shell import MORE, Shell
from tests.unit.apps.server.exceptions.test_engines import add_rule
from tests.unit.apps.server.running import RunningServer, until

OUTAGE = 60
"""Seconds without a scheduler."""
OF_NOBODY = 'cause in ["node", "network", "transfer", "scheduler"]'
NODES = ("n1", "n2", "n3")


async def add_rules(server: RunningServer, tenant: str) -> None:
    """Two, as a site would have them: more memory for want of it, and once more for what is nobody's own."""
    await add_rule(server, tenant, MORE)
    await add_rule(server, tenant, {"action": "resubmit"}, condition=OF_NOBODY, cause="node")


@asynccontextmanager
async def memory(user: Shell, slurm: OwnSlurm) -> AsyncIterator[None]:
    """The program wants more memory than the flow asks for, and Slurm kills it."""
    user.program("measure", greedy())
    yield


@asynccontextmanager
async def node(user: Shell, slurm: OwnSlurm) -> AsyncIterator[None]:
    """A node loses power while it works, and an administrator says so."""

    async def strike(victim: str) -> None:
        await asyncio.to_thread(slurm.lose_power, int(victim[1:]))
        slurm.slurm("scontrol", "update", f"nodename={victim}", "state=down", "reason=power lost")

    async with _while_it_works(user, strike) as struck:
        yield
    await asyncio.to_thread(slurm.order, "launch", "slurm", f"d{(await struck)[1:]}")


@asynccontextmanager
async def heartbeat(user: Shell, slurm: OwnSlurm) -> AsyncIterator[None]:
    """A node is not heard any more, while what runs there goes on; Slurm gives it up by itself."""

    async def strike(victim: str) -> None:
        os.kill(slurm.pid(f"d{victim[1:]}"), signal.SIGSTOP)

    async with _while_it_works(user, strike) as struck:
        yield
    victim = await struck
    os.kill(slurm.pid(f"d{victim[1:]}"), signal.SIGCONT)
    (user.folder / "slow" / victim).unlink(missing_ok=True)
    await asyncio.to_thread(slurm.order, "wait")


@asynccontextmanager
async def staging(user: Shell, slurm: OwnSlurm) -> AsyncIterator[None]:
    """The program fetches its input from the replica next to its node; the one next to the first node is down."""
    with replica(user.folder / "replica") as url, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        dead = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        user.program("measure", fetching({"n1": dead, "n2": url, "n3": url}))
        yield


@asynccontextmanager
async def outage(user: Shell, slurm: OwnSlurm) -> AsyncIterator[None]:
    """The scheduler is away for a minute while jobs run and end."""

    async def strike(_victim: str) -> None:
        await asyncio.to_thread(slurm.stop_controller)
        for name in NODES:
            (user.folder / "slow" / name).unlink(missing_ok=True)
        await asyncio.sleep(OUTAGE)
        await asyncio.to_thread(slurm.order, "launch", "slurm", "ctld")

    async with _while_it_works(user, strike) as struck:
        yield
    await struck


@asynccontextmanager
async def outage_at_submission(user: Shell, slurm: OwnSlurm) -> AsyncIterator[None]:
    """The scheduler is away for a minute, from before the first job is submitted."""
    user.program("measure", stuck_on(user.folder / "slow"))
    await asyncio.to_thread(slurm.stop_controller)

    async def back() -> None:
        await asyncio.sleep(OUTAGE)
        await asyncio.to_thread(slurm.order, "launch", "slurm", "ctld")

    coming = asyncio.create_task(back())
    try:
        yield
    finally:
        await coming


class Failure(NamedTuple):
    """One of them."""

    cause: str
    """What its incidents are put down to; empty for a failure that no job dies of."""
    met: Callable[[Shell, OwnSlurm], AbstractAsyncContextManager[None]]


FAILURES = {
    "memory": Failure("memory", memory),
    "node": Failure("node", node),
    "heartbeat": Failure("node", heartbeat),
    "staging": Failure("transfer", staging),
    "outage": Failure("", outage),
    "outage-at-submission": Failure("", outage_at_submission),
}


@asynccontextmanager
async def _while_it_works(user: Shell, strike: Callable[[str], Awaitable[None]]) -> AsyncIterator[asyncio.Future[str]]:
    """Both parts of the flow have begun, and do not go on before the node of the first is struck. The future is that node."""
    slow = user.folder / "slow"
    slow.mkdir()
    for name in NODES:
        (slow / name).touch()
    user.program("measure", stuck_on(slow))

    async def wait_and_strike() -> str:
        await until(lambda: _both(user), "both parts to begin", 180)
        # A job that ends before the watcher has seen it may still be barred from a requeue, as Nextflow submits it.
        looks = user.watcher.looks
        await until(lambda: _looked(user, looks + 2), "the watcher to look at both", 60)
        victim = _begun(user)["1"]
        await strike(victim)
        for name in NODES:
            if name != victim:
                (slow / name).unlink(missing_ok=True)
        return victim

    struck = asyncio.create_task(wait_and_strike())
    try:
        yield struck
    finally:
        for path in slow.iterdir():
            path.unlink(missing_ok=True)
        if not struck.done():
            struck.cancel()


async def _both(user: Shell) -> bool:
    return len(_begun(user)) == 2


async def _looked(user: Shell, times: int) -> bool:
    return user.watcher.looks >= times


def _begun(user: Shell) -> dict[str, str]:
    """Which part began on which node."""
    place = user.folder / "begun"
    lines = place.read_text().splitlines() if place.exists() else []
    return dict(line.split(" on ") for line in lines)


@contextmanager
def replica(folder: Path) -> Iterator[str]:
    """A real server of files."""
    folder.mkdir()
    for n in (1, 2):
        (folder / f"part{n}").write_text(f"{n}\n")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
