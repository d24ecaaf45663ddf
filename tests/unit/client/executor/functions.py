"""Functions that runners are asked to call."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


class Unlucky(Exception):
    """An exception of a program's own."""


def add(first: int, other: int = 0) -> int:
    return first + other


def same(value: Any) -> Any:
    return value


def whoami() -> int:
    """The process that carries out the call."""
    return os.getpid()


def variable(name: str) -> str | None:
    return os.environ.get(name)


def large(size: int) -> str:
    return "x" * size


def fails(words: str) -> None:
    print("about to fail")  # noqa: T201 - for its log
    raise Unlucky(words, 7)


def odd() -> object:
    return object()


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def waits_for(path: str) -> str:
    """Say that it has begun, and wait for a file."""
    Path(f"{path}.begun").touch()
    while not Path(path).exists():
        time.sleep(0.01)
    return "done"


def fails_until(path: str, times: int) -> int:
    """Fail the first so many times."""
    begun = Path(path)
    before = len(begun.read_text()) if begun.exists() else 0
    begun.write_text("x" * (before + 1))
    if before < times:
        raise Unlucky(f"try {before + 1}")
    return before + 1


def leaves(name: str, text: str) -> str:
    """Leave a file in the call's own folder."""
    Path(name).write_text(text)
    return os.environ["FORESTAY_OUTPUTS"]


def reads(name: str) -> str:
    """Read a file in the call's own folder."""
    return Path(name).read_text()


def picky(number: int, bad: int = 1 << 40) -> int:
    """Fails for one number, and brings its interpreter down for its negative."""
    if number == bad:
        raise ValueError("not this one", number)
    if number == -bad:
        os._exit(3)
    return number * number


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fills(size: int) -> int:
    """Takes memory, and gives it back at its end."""
    return len(b"x" * size)
