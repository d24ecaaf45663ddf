"""Checks the machine: Python, folders, free disk space, the pages, and unknown environment variables."""

from __future__ import annotations

import difflib
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from forestay.apps.config.settings import Settings
from forestay.apps.doctor.check_result import GOOD, MISSING, NOTE, CheckResult
from forestay.client.api.sizing import MEASURED, OPEN_FILES, SPARE_FILES

ROOM = 1 << 30
"""Free bytes below which a disk counts as nearly full."""
ALSO = frozenset({"CONFIG", "SERVER", "TOKEN", "TOKEN_FILE", "CLIENT_CONFIG"})
"""Names of variables that are not settings of the processes but resemble one."""


def system() -> Iterator[CheckResult]:
    yield CheckResult("python", GOOD, f"{platform.python_version()} at {sys.executable}")
    if sys.platform != "linux":
        yield CheckResult(
            "system", MISSING, f"{platform.system()} is not Linux", "Run Forestay on Linux, or in a Linux container."
        )


def open_files(settings: Settings) -> Iterator[CheckResult]:
    """Check the limit of open files: a server at its limit cannot accept more pilots."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES:
        yield CheckResult("open files", GOOD, "enough for any plan")
        return
    spare = min(SPARE_FILES, soft // 2)
    words = f"at most {soft:,}: enough for about {(soft - spare) // MEASURED.sockets:,} pilots at a server"
    if settings.store_url.startswith("sqlite"):
        yield CheckResult("open files", GOOD, words)
    else:
        remedy = f"Raise the limit to {OPEN_FILES:,} where the server is started: LimitNOFILE of its unit, or ulimits."
        yield CheckResult("open files", NOTE, words, remedy)


def names(settings: Settings) -> Iterator[CheckResult]:
    """Check the names of variables: a misspelt one would silently have no effect."""
    known = [name.upper() for name in type(settings).model_fields]
    for variable in sorted(os.environ):
        name = variable.removeprefix("FORESTAY_")
        if name == variable or name in known or name in ALSO:
            continue
        if near := difflib.get_close_matches(name, known, n=1, cutoff=0.8):
            yield CheckResult(
                "settings",
                NOTE,
                f"{variable} is set, but is not a known setting",
                f"If FORESTAY_{near[0]} is meant, rename it.",
            )
    where = os.environ.get("FORESTAY_CONFIG")
    yield CheckResult(
        "settings", GOOD, f"read from {where} and the environment" if where else "read from the environment"
    )


def state(settings: Settings) -> Iterator[CheckResult]:
    folder = settings.state
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield CheckResult(
            "state",
            MISSING,
            f"{folder} cannot be written: {error.strerror}",
            "Choose another folder with --state or FORESTAY_STATE.",
        )
        return
    words = f"{folder}, {free >> 20:,} MiB free"
    if free < ROOM:
        yield CheckResult(
            "state", NOTE, words, "Free space, or choose a folder on another disk with --state or FORESTAY_STATE."
        )
    else:
        yield CheckResult("state", GOOD, words)


def folders(settings: Settings) -> Iterator[CheckResult]:
    """Check the other configured folders: they exist, with free space where something is written."""
    read = {"flows": [settings.flows], "flow_files": settings.flow_files, "outputs": settings.outputs}
    written = {"attachments": [settings.attachments]}
    for setting, paths in (read | written).items():
        for path in filter(None, paths):
            yield from _folder(setting, path, must_write=setting in written)


def _folder(setting: str, path: Path, *, must_write: bool) -> Iterator[CheckResult]:
    change = f"Create the folder, or change FORESTAY_{setting.upper()}."
    wanted = os.R_OK | os.X_OK | (os.W_OK if must_write else 0)
    if not path.is_dir():
        yield CheckResult(setting, MISSING, f"{path} is not a folder", change)
    elif not os.access(path, wanted):
        verb = "written" if must_write else "read"
        yield CheckResult(setting, MISSING, f"{path} cannot be {verb} by this user", change)
    elif must_write and (free := shutil.disk_usage(path).free) < ROOM:
        yield CheckResult(setting, NOTE, f"{path} has {free >> 20:,} MiB left", "Make room.")
    else:
        yield CheckResult(setting, GOOD, str(path))


def pages(_: Settings) -> Iterator[CheckResult]:
    if (files("forestay.apps.server.pages") / "static" / "index.html").is_file():
        yield CheckResult("pages", GOOD, "built in")
    else:
        yield CheckResult(
            "pages",
            NOTE,
            "the web pages are not built into this installation; everything else works",
            "Install the wheel, which contains them, or build them in the source folder: just pages",
        )
