"""`holdfast doctor`: what is missing on this machine, and how to get it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.adapters.temporal.dev_server import HOW_TO_GET_TEMPORAL, find_program
from holdfast.apps.settings import Settings, load
from holdfast.client import BadSettings, ClientError, HoldfastClient, NotAllowed, Patience, find_settings
from holdfast.client.errors import ApiError
from holdfast.ports.errors import Permanent

GOOD, MISSING, NOTE = "good", "missing", "note"
MARKS = {GOOD: "ok", MISSING: "MISSING", NOTE: "note"}
ROOM = 1 << 30
"""Bytes below which a disk is nearly full."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    about: str
    state: str
    words: str
    remedy: str = ""


def run_doctor(state: Path | None, *, as_json: bool) -> int:
    """Look at everything, tell it, and give the exit code: 1 if something is missing."""
    found = list(examine(state))
    if as_json:
        sys.stdout.write(json.dumps({"findings": [asdict(one) for one in found]}) + "\n")
    else:
        for one in found:
            sys.stdout.write(f"{MARKS[one.state]:<8} {one.about:<10} {one.words}\n")
            if one.remedy:
                sys.stdout.write(f"{'':<19} {one.remedy}\n")
    missing = sum(one.state == MISSING for one in found)
    if not as_json:
        sys.stderr.write(
            "Nothing is missing.\n" if not missing else f"{missing} missing; what to do stands beside it.\n"
        )
    return 1 if missing else 0


def examine(state: Path | None) -> Iterator[Finding]:
    """Every finding; one that goes wrong does not keep the others back."""
    yield Finding("python", GOOD, f"{platform.python_version()} at {sys.executable}")
    if sys.platform != "linux":
        yield Finding(
            "system", MISSING, f"{platform.system()} is not Linux", "Run Holdfast on Linux, or in a Linux container."
        )
    try:
        settings = load(state=state)
    except Permanent as error:
        yield Finding(
            "settings", MISSING, str(error), "Mend the file that HOLDFAST_CONFIG names, or the HOLDFAST_ variables."
        )
        return
    checks: list[Callable[[Settings], Iterator[Finding]]] = [_state, _key, _temporal, _server]
    for check in checks:
        yield from check(settings)


def _state(settings: Settings) -> Iterator[Finding]:
    folder = settings.state
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield Finding(
            "state",
            MISSING,
            f"{folder} cannot be written: {error.strerror}",
            "Name another with --state or HOLDFAST_STATE.",
        )
        return
    words = f"{folder}, {free >> 20:,} MiB free"
    if free < ROOM:
        yield Finding(
            "state", NOTE, words, "Make room, or name a folder on another disk with --state or HOLDFAST_STATE."
        )
    else:
        yield Finding("state", GOOD, words)


def _key(settings: Settings) -> Iterator[Finding]:
    path = settings.key_file
    if not path.exists():
        yield Finding("key", NOTE, f"{path} is not there; the first start makes it")
    elif stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield Finding("key", MISSING, f"{path} can be read by others; it signs every token", f"chmod 600 {path}")
    else:
        yield Finding("key", GOOD, str(path))


def _temporal(settings: Settings) -> Iterator[Finding]:
    """Where cases live: a Temporal that runs, or the program of one."""
    if settings.temporal:
        host, _, port = settings.temporal.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=3).close()
        except (OSError, ValueError) as error:
            yield Finding(
                "temporal",
                MISSING,
                f"{settings.temporal} does not answer: {error}",
                "Start it, or change HOLDFAST_TEMPORAL.",
            )
        else:
            yield Finding("temporal", GOOD, f"answers at {settings.temporal}")
        return
    if settings.temporal_program == "none":
        yield Finding("temporal", NOTE, "flows are not run, as HOLDFAST_TEMPORAL_PROGRAM says")
        return
    try:
        program = find_program(settings.temporal_program, os.environ, settings.cache)
    except Permanent as error:
        yield Finding("temporal", MISSING, str(error), HOW_TO_GET_TEMPORAL)
        return
    if program is not None:
        yield Finding("temporal", GOOD, f"{program.path} ({program.source})")
    else:
        words = "not here; `holdfast dev` has it fetched when it first starts, which needs the network"
        yield Finding("temporal", NOTE, words, HOW_TO_GET_TEMPORAL)


def _server(settings: Settings) -> Iterator[Finding]:
    """The server that the command would go to."""
    start = "On a laptop: holdfast dev. Elsewhere ask your operator, then set HOLDFAST_SERVER."
    try:
        known = find_settings()
    except BadSettings as error:
        yield Finding("server", NOTE, str(error), start)
        return
    with HoldfastClient(known.server.value, known.token.value, patience=Patience(seconds=0)) as client:
        try:
            told = client.status()
        except NotAllowed as error:
            yield Finding(
                "token",
                MISSING,
                f"{error} ({known.token.source})",
                "Ask your operator for a new one, or make one: holdfast token.",
            )
            return
        except ClientError as error:
            yield Finding("server", NOTE, f"{known.server.value} ({known.server.source}): {error}", start)
            return
        yield Finding("server", GOOD, f"{known.server.value}, version {told.get('version')}, store {told.get('store')}")
        you = told.get("you") or {}
        yield Finding("token", GOOD, f"{you.get('subject')} of tenant {you.get('tenant')} ({known.token.source})")
        yield _pilots(client)
        yield _cases(client)


def _pilots(client: HoldfastClient) -> Finding:
    alive = sum(one.get("state") == "alive" for one in client.pilots())
    if alive:
        return Finding("pilots", GOOD, f"{alive} alive")
    return Finding("pilots", MISSING, "none is alive, so no job runs", "Start one: holdfast pilot --help")


def _cases(client: HoldfastClient) -> Finding:
    try:
        client.find_cases(limit=1)
    except (ApiError, ClientError) as error:
        return Finding("cases", MISSING, str(error), HOW_TO_GET_TEMPORAL)
    return Finding("cases", GOOD, "flows can be run")
