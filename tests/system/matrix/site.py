"""A real server, a real reconciler, and hosts: real pilots whose disks, memory and ways to the server break as a test says."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.system.chaos.processes import free_port, launch
from tests.system.matrix.cut_wire import Wire, cut_wire
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain
from tests.unit.apps.server.store_room import store_room
from tests.unit.client.executor.file_server import FileServer, file_server
from tests.unit.pilot.storage_server import Storage, serving

from forestay.adapters.private_file import write_private
from forestay.client import ForestayClient

PATIENCE = 180.0
ELEMENT_SITE = "by-the-element"
OBEYS = "-dac_override,-dac_read_search"
"""Without these rights root is refused what the modes of files refuse."""


def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Wait for a condition to hold and give its value; fail loudly when it never does."""
    give_up = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < give_up, f"waited {patience:.0f} s in vain for {what}"
        time.sleep(0.01)
    return value


class CallbackDesk:
    """Takes notifications, each by its path."""

    def __init__(self) -> None:
        self.seen: dict[str, list[dict[str, Any]]] = {}
        self.refusals: dict[str, int] = {}
        """How many notifications to a path are refused before one is taken."""
        self.port = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def callback_desk() -> Iterator[CallbackDesk]:
    desk = CallbackDesk()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            refused = desk.refusals.get(self.path, 0)
            if refused:
                desk.refusals[self.path] = refused - 1
            else:
                desk.seen.setdefault(self.path, []).append(body)
            self.send_response(503 if refused else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        desk.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield desk
        server.shutdown()
        thread.join()


@dataclass(eq=False)
class Host:
    """One pilot on a host of its own."""

    started: Started
    work: Path
    outputs: Path
    log: Path

    @property
    def jobs(self) -> Path:
        """Where the working folders of its jobs are."""
        return next(self.work.glob("pilot-*/jobs"))


@dataclass(eq=False)
class FailureSite:
    """What runs, and how to speak to it."""

    running: Processes
    server: Started
    folder: Path
    web: FileServer
    desk: CallbackDesk
    element: Storage
    """A storage element that takes the outputs of hosts at `ELEMENT_SITE`."""
    wire: Wire
    """The only way from the hosts to the server."""
    reconciler: Started
    launcher: ThreadPoolExecutor
    """The one thread that starts processes: they die with it, and it lives as long as the site."""
    groups: list[Path] = field(default_factory=list)

    def lose_server(self) -> None:
        """kill -9 of the only server."""
        self.server.kill()

    def start_server(self) -> None:
        """A new server in the place of the lost one."""
        port = int(self.server.url.rpartition(":")[2])
        self.server = self.launcher.submit(
            lambda: asyncio.run(self.running.server(port=port, url=self.wire.url))
        ).result()

    def recover(self) -> None:
        """As it was in the beginning, whatever a failed scenario left behind."""
        self.wire.recover()
        self.element.failures = []
        if self.server.process.poll() is not None:
            self.start_server()
        if self.reconciler.process.poll() is not None:
            self.start_reconciler()

    def lose_reconciler(self) -> None:
        self.reconciler.kill()

    def start_reconciler(self) -> None:
        self.reconciler = self.launcher.submit(self.running.reconciler).result()

    def tenant(self) -> str:
        return f"t-{uuid4().hex[:8]}"

    def client(self, tenant: str, *roles: str, subject: str = "ada") -> ForestayClient:
        token = self.running.domain.token(*(roles or ("submitter",)), tenant=tenant, subject=subject)
        return ForestayClient(self.server.url, token)

    def client_at(self, url: str, tenant: str) -> ForestayClient:
        """A submitter who reaches the server by another way."""
        return ForestayClient(url, self.running.domain.token("submitter", tenant=tenant))

    def host(
        self,
        tenant: str,
        name: str = "sound",
        *,
        prepare: str = "",
        group: Path | None = None,
        unprivileged: bool = False,
        outputs: Path | None = None,
        work: Path | None = None,
        **options: str,
    ) -> Host:
        """Start a pilot. `prepare` is a shell line that is run first, in file systems that only this pilot sees: `$WORK` and `$OUTPUTS` are its folders. An unprivileged one obeys the modes of files even as root."""
        place = self.folder / f"host-{uuid4().hex[:8]}"
        work, out = work or place / "work", outputs or place / "outputs"
        for path in (work, out):
            path.mkdir(parents=True, exist_ok=True)
        enrol = place / "enrol"
        write_private(enrol, self.running.domain.token("enrol", tenant=tenant, subject="enroller"))
        words = [sys.executable, "-m", "forestay_pilot", "--server", self.wire.url]
        words += ["--token-file", str(enrol), "--host", name, "--outputs", str(out), "--work", str(work)]
        words += ["--cpus", "8", "--grace", "1", "--time-left", "1800", "--space", "0"]
        words += [word for option, value in options.items() for word in (f"--{option.replace('_', '-')}", value)]
        if unprivileged:
            words = ["setpriv", f"--bounding-set={OBEYS}", f"--inh-caps={OBEYS}", *words]
            prepare = prepare or "true"
        if prepare:
            words = ["unshare", "-rm", "sh", "-ec", f"{prepare}\nexec {shlex.join(words)}"]
        if group is not None:
            words = ["sh", "-ec", f"echo $$ > {group / 'cgroup.procs'}\nexec {shlex.join(words)}"]
        environment = os.environ | {"WORK": str(work), "OUTPUTS": str(out)}
        log = self.folder / f"pilot-{len(self.running.started)}.log"
        started = Started(self.launcher.submit(launch, words, log, environment=environment).result())
        self.running.started.append(started)
        return Host(started, work, out, log)

    def memory_group(self, size: int) -> Path | None:
        """A control group whose processes have so much memory together; nothing where we may make none."""
        for root, limit in (
            (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
            (Path("/sys/fs/cgroup"), "memory.max"),
        ):
            place = root / f"forestay-{uuid4().hex[:8]}"
            try:
                if not (root / "cgroup.procs").exists():
                    continue
                place.mkdir()
                (place / limit).write_text(str(size))
            except OSError:
                if place.exists():
                    place.rmdir()
                continue
            self.groups.append(place)
            return place
        return None


def _gone(group: Path) -> bool:
    """Take a control group away as soon as its last process is reaped."""
    try:
        group.rmdir()
    except OSError:
        return False
    return True


@asynccontextmanager
async def failure_site(folder: Path, **settings: Any) -> AsyncIterator[FailureSite]:
    """Everything on one machine; nothing of it outlives the block."""
    known: dict[str, Any] = {
        "lease": 60,
        "callback_hosts": "127.0.0.1",
        "staging_hosts": "127.0.0.1",
        "free_tries": "",
        "outputs": str(folder),
    }
    with serving(_made(folder / "element")) as element:
        known["storage"] = json.dumps(
            [
                {
                    "name": "web",
                    "kind": "http",
                    "url": element.url,
                    "private": True,
                    "sites": [ELEMENT_SITE],
                    "outputs": "out",
                }
            ]
        )
        async with _running(folder, element, known | settings) as site:
            yield site


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@asynccontextmanager
async def _running(folder: Path, element: Storage, settings: dict[str, Any]) -> AsyncIterator[FailureSite]:
    async with (
        store_room("sqlite", folder) as url,
        processes(Domain(url, folder), folder, **settings) as running,
    ):
        port = free_port()
        with (
            ExitStack() as stack,
            file_server() as web,
            callback_desk() as desk,
            cut_wire(f"http://127.0.0.1:{port}") as wire,
        ):
            server = await running.server(port=port, url=wire.url)
            launcher = stack.enter_context(ThreadPoolExecutor(1))
            site = FailureSite(running, server, folder, web, desk, element, wire, running.reconciler(), launcher)
            try:
                yield site
            finally:
                await running.stop()
                for group in site.groups:
                    until(lambda group=group: _gone(group), "the end of a control group")  # type: ignore[misc]
