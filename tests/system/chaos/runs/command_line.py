"""What the campaigns with runs have in common on the command line: a seed, a store, a folder that is kept if anything was wrong, and the last line."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar


class Judged(Protocol):
    """A report that says what was wrong."""

    wrong: list[str]


Report = TypeVar("Report", bound=Judged)


def say(text: str) -> None:
    with suppress(BrokenPipeError):
        sys.stderr.write(f"{time.strftime('%H:%M:%S')}  {text}\n")
        sys.stderr.flush()


def parser(program: str, description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=program, description=description)
    made.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    made.add_argument("--store", default="postgresql", choices=["postgresql", "sqlite"])
    made.add_argument("--folder", type=Path, help="where logs and Temporal's data are kept; a new one unless given")
    return made


def names(text: str) -> list[str]:
    return text.split(",")


def carry_out(
    made: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace, Path], Coroutine[Any, Any, Report]],
    last_line: Callable[[int, Report, float], str],
) -> int:
    """Run a campaign as it was ordered; 1 if anything was wrong."""
    arguments = made.parse_args()
    folder: Path = arguments.folder or Path(tempfile.mkdtemp(prefix=f"forestay-{made.prog}-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    report = asyncio.run(run(arguments, folder.resolve()))
    for complaint in report.wrong:
        say(f"WRONG: {complaint}")
    if not report.wrong and arguments.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(last_line(arguments.seed, report, time.monotonic() - began) + "\n")
    return 1 if report.wrong else 0
