"""Plays the five acts on real processes of this machine, for a visitor or, unattended, in the visitor's place."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path

from forestay.adapters.temporal.dev_server import HOW_TO_GET_TEMPORAL, DevServer, fetch_program, find_program
from forestay.apps.config.settings import Settings
from forestay.apps.demo import act_approval, act_caches, act_kills, act_patterns, act_rules
from forestay.apps.demo.act import PATIENCE, Act, ActResult, DemoStage, NotAsPromisedError
from forestay.apps.demo.report import PlayedAct, report_page
from forestay.apps.demo.site import HOSTS, NAMESPACES, DemoSite
from forestay.apps.demo.storage import slow_storage
from forestay.client import AsyncForestayClient, ClientError, Patience
from forestay.client.api import calls
from forestay.ports.errors import Permanent, Transient

ACTS = (act_caches.ACT, act_kills.ACT, act_patterns.ACT, act_rules.ACT, act_approval.ACT)
VISITOR = "visitor"


async def run_demo(settings: Settings, *, auto: bool, report: Path, keep: Path | None) -> bool:
    """Play all acts and write the report; whether everything came out as promised."""
    if not (auto or sys.stdin.isatty()):
        raise Permanent("there is no terminal to wait at; use --auto")
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
    with _folder(keep) as folder:
        played = await _play(settings, folder, auto=auto, report=report)
    return not any(entry.problem for entry in played)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where everything is kept: for good, or until the end."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="forestay-demo-") as folder:
            yield Path(folder)
        return
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise Permanent(f"{keep} is not empty; name a new folder with --keep")
    yield keep.resolve()


async def _play(settings: Settings, folder: Path, *, auto: bool, report: Path) -> list[PlayedAct]:
    async with _site(settings, folder) as site:
        token = site.token(VISITOR, "administrator")
        async with AsyncForestayClient(site.url, token, patience=Patience(seconds=PATIENCE)) as client:
            stage = DemoStage(site, client, auto, _say)
            await _answers(client, site)
            await site.start_pilots()
            if not auto:
                link = await client.send(calls.login_link())
                _say(f"Open this link in a browser, once and within ten minutes:\n  {link['url']}")
            played = []
            for act in ACTS:
                site.notice.write_text(f"{act.paper} {act.title}: {act.contributes}", encoding="utf-8")
                if not auto:
                    _say(f"\nAct {act.paper}: {act.title}. {act.contributes}")
                    await _enter("Press Enter to begin.")
                entry = await _played(act, stage)
                played.append(entry)
                mark = f"not as promised: {entry.problem}" if entry.problem else entry.result.summary
                _say(f"{act.paper} {act.title} ({entry.seconds:.0f} s): {mark}")
            _write(report, played)
            if not auto:
                await _enter("Look around. Press Enter to stop everything.")
    return played


def _write(report: Path, played: Sequence[PlayedAct]) -> None:
    machine = f"{platform.system()} {platform.machine()} with {os.cpu_count()} processors"
    report.write_text(report_page(played, version=version("forestay"), machine=machine), encoding="utf-8")
    _say(f"The report is {report}.")


async def _answers(client: AsyncForestayClient, site: DemoSite) -> None:
    """Wait until the server answers, which a busy machine starts slowly."""
    _say(f"Starting Temporal, a server, a reconciler, an orchestrator and pilots on {', '.join(HOSTS)} …")
    server = site.processes["server"]
    answered, ended = asyncio.ensure_future(client.status()), asyncio.ensure_future(server.ended())
    try:
        await asyncio.wait({answered, ended}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            raise Permanent(f"the server did not start:\n{server.log.read_text(errors='replace')[-2000:]}")
        await answered
    finally:
        answered.cancel()
        ended.cancel()


async def _played(act: Act, stage: DemoStage) -> PlayedAct:
    began = time.monotonic()
    result, problem = ActResult(), ""
    try:
        await act.play(stage, result)
    except (NotAsPromisedError, ClientError) as error:
        problem = str(error) or type(error).__name__
    return PlayedAct(act, result, time.monotonic() - began, problem)


@asynccontextmanager
async def _site(settings: Settings, folder: Path) -> AsyncIterator[DemoSite]:
    program = find_program(settings.temporal_program, os.environ, settings.cache)
    if program is None:
        _say("Downloading the Temporal server (60 MB, once) …")
        try:
            program = await fetch_program(settings.cache)
        except Transient as error:
            raise Transient(f"the demonstration needs Temporal: {error}.\n{HOW_TO_GET_TEMPORAL}") from error
    temporal = DevServer(program.path, folder / "temporal", namespaces=NAMESPACES, on_line=_say)
    (folder / "near").mkdir()
    with slow_storage(folder / "near") as near:
        site = DemoSite(folder, temporal.address, NAMESPACES[0], temporal_server=temporal, near=near)
        await temporal.start()
        try:
            await site.start()
            yield site
        finally:
            await site.stop()


async def _enter(words: str) -> None:
    """Wait for a line of the terminal; no thread that would outlive Ctrl-C."""
    _say(words)
    loop, entered = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, entered.set)
    try:
        await entered.wait()
    finally:
        loop.remove_reader(sys.stdin)
    sys.stdin.readline()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
