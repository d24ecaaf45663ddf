"""Everything on a laptop: server, orchestrator, reconciler and one pilot, on SQLite, with Temporal's development server for runs."""

from __future__ import annotations

import asyncio
import fcntl
import getpass
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from rich.console import Console

from forestay.adapters.private_file import write_private
from forestay.adapters.temporal.dev_server import HOW_TO_GET_TEMPORAL, DevServer, fetch_program, find_program, tied
from forestay.apps.compose.components import make_components
from forestay.apps.compose.loops import run_loops, stop, until_stopped
from forestay.apps.compose.orchestrator import OrchestratorComponents
from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.apps.compose.server import ServerComponents
from forestay.apps.config.settings import Settings
from forestay.apps.operations.tokens import make_token
from forestay.apps.server.app import HttpServer, listening, make_app, server_config
from forestay.apps.uvicorn_signals import UvicornWithoutSignals
from forestay.client import BadSettings
from forestay.client.transport.settings import find_server, places
from forestay.ports.errors import Permanent, Transient
from forestay.ports.operations.identity import Role
from forestay_pilot.process.payload_cgroup import ready_parent

DAY = 86_400


async def run_dev(settings: Settings, *, slots: int, verbose: bool) -> None:
    """Start all parts in this process, and Temporal and a pilot beside it; stop them together."""
    own = listening(settings)
    with _alone(settings.state):
        temporal = await _start_temporal(settings)
        address = {"temporal": temporal.address} if isinstance(temporal, DevServer) else {}
        # The user who runs it can read all of this anyway.
        files = settings.flow_files or (Path.cwd(), Path("/"))
        folders = {"outputs": (*settings.outputs, settings.state / "outputs"), "flow_files": files}
        only = {"approvals": "off"}  # there is only one person
        settings = settings.model_copy(update=folders | address | only)
        try:
            await _run_parts(settings, own, slots, temporal, verbose=verbose)
        finally:
            if isinstance(temporal, DevServer):
                await temporal.stop()


async def _run_parts(
    settings: Settings, own: socket.socket, slots: int, temporal: DevServer | str, *, verbose: bool
) -> None:
    _say("Starting server, orchestrator, reconciler and pilot …")
    components = make_components(settings)
    kept = ReconcilerComponents(components)
    services = ServerComponents(components, kept)
    server = _Inside(server_config(make_app(services), settings))
    serving = asyncio.create_task(server.serve(sockets=[own]))
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.02)
    if serving.done():
        serving.result()
        raise Permanent("the server did not start; use -v for details")
    pilot = await _start_pilot(settings, slots, verbose=verbose)
    loops = kept.loops()
    if components.engine is not None:
        loops["orchestrator"] = OrchestratorComponents(components, services).run
    missing = temporal if isinstance(temporal, str) else await _ready(temporal)
    reconciler = asyncio.create_task(run_loops(loops))
    try:
        user = re.sub(r"[^A-Za-z0-9._@+-]", "-", getpass.getuser())[:64] or "me"
        _welcome(settings, slots, user, await _link(services, user), missing)
        await until_stopped()
    finally:
        await _stop_pilot(pilot)
        server.should_exit = True
        await serving
        await stop(reconciler)


async def _link(services: ServerComponents, user: str) -> str:
    """A login link for a browser; empty if the store is too busy to store one, as it may be after a crash."""
    for _ in range(5):
        try:
            roles = (Role.ADMINISTRATOR,)
            invited = await services.sessions.invite(subject=user, tenant="default", roles=roles)
        except Transient:
            await asyncio.sleep(1.0)
        else:
            return f"{services.components.settings.public_url}/login?once={invited.once}"
    return ""


async def _ready(temporal: DevServer) -> str:
    try:
        await temporal.ready()
    except Transient as error:
        return f"Jobs run, flows wait: {error}"
    return ""


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Lock the folder: two processes on one folder would damage each other's files."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "dev.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Permanent(f"another `forestay dev` uses {state}; choose another folder with --state") from error
        yield


async def _start_temporal(settings: Settings) -> DevServer | str:
    """Temporal, started or starting; or the reason why there are no runs."""
    if settings.temporal:
        return ""  # a server that the user runs
    if settings.temporal_program == "none":
        return "Flows are disabled by FORESTAY_TEMPORAL_PROGRAM."
    program = find_program(settings.temporal_program, os.environ, settings.cache)
    if program is None:
        _say("Downloading the Temporal server (60 MB, once) …")
        try:
            program = await fetch_program(settings.cache)
        except Transient as error:
            return f"Jobs run, flows do not: {error}.\n{HOW_TO_GET_TEMPORAL}"
    server = DevServer(program.path, settings.state / "temporal", on_line=_say)
    await server.start()
    return server


class _Inside(UvicornWithoutSignals, HttpServer):
    """Leaves the signals to us: the pilot must end before its server does."""


async def _stop_pilot(pilot: asyncio.subprocess.Process) -> None:
    """Ask the pilot first to drain, then to stop its jobs, while the server can still receive their completions."""
    for patience in (1.0, 5.0):
        with suppress(ProcessLookupError):
            pilot.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await pilot.wait()
                return
    with suppress(ProcessLookupError):
        pilot.kill()
    await pilot.wait()


async def _start_pilot(settings: Settings, slots: int, *, verbose: bool) -> asyncio.subprocess.Process:
    enrol = settings.state / "enrol-token"
    write_private(
        enrol, make_token(settings, subject="dev-pilot", tenant="default", roles=["enrol"], seconds=365 * DAY)
    )
    arguments = [
        sys.executable, "-m", "forestay_pilot",
        "--server", settings.public_url,
        "--token-file", str(enrol),
        "--slots", str(slots),
        "--cpus", str(max(slots, os.cpu_count() or 1)),
        "--memory", str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "--disk", str(1 << 40),
        "--outputs", str(settings.state / "outputs"),
        "--work", str(settings.state / "work"),
    ]  # fmt: skip
    if verbose:
        arguments.append("-v")
    log = None if verbose else (settings.state / "pilot.log").open("ab")
    # Its own process group: Ctrl-C in the terminal reaches the pilot through us, as an orderly stop. If we are killed, it ends its jobs and exits.
    return await asyncio.create_subprocess_exec(*tied(arguments), stderr=log, start_new_session=True)


def _say(text: str) -> None:
    Console(stderr=True, highlight=False, markup=False).print(text, soft_wrap=True)


def _welcome(settings: Settings, slots: int, user: str, link: str, missing: str) -> None:
    token = make_token(settings, subject=user, tenant="default", roles=["administrator"], seconds=30 * DAY)
    where = places(os.environ)
    write_private(where.dev_token, token)
    write_private(where.dev, f'server = "{settings.public_url}"')
    say = partial(Console(stderr=True, highlight=False).print, soft_wrap=True)
    say(f"[bold]Forestay[/bold] runs at {settings.public_url} with {slots} job slots.")
    if link:
        say(f"Open this link in a browser, once and within ten minutes (later: forestay link):\n  {link}")
    say(f"Your token is in {where.dev_token} (the command finds it automatically). All data is in {settings.state}.")
    with suppress(BadSettings):
        server = find_server(None, os.environ, Path.cwd(), where)
        if server.value != settings.public_url:
            say(f"The command uses {server.value} ({server.source}) unless you pass --server {settings.public_url}")
    if not ready_parent():
        say("Memory limits are not enforced here: a job may use more than it asked for (Pilots, control groups).")
    say("In another terminal:")
    say("  forestay submit --name hello -- echo 'hello, world'")
    say("  forestay queue")
    say("  forestay run FLOW.yaml")
    if missing:
        _say(missing)
    say("Ctrl-C stops it. Running jobs are stopped then, and start again with the next `forestay dev`.")
