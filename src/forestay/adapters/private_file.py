"""Files that hold a secret: readable by their owner only."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from forestay.ports.errors import Permanent


def open_to_others(path: Path) -> bool:
    """Whether anyone but its owner may read or change a file."""
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def must_be_private(path: Path, why: str) -> None:
    """Raise `Permanent`, with the remedy, if others can read a file; `why`: the danger."""
    if open_to_others(path):
        raise Permanent(f"{path} can be read by others: {why}. Run: chmod 600 {path}")


def make_private(path: Path, text: str) -> None:
    """Create such a file unless it exists. If two processes create it at once, the first one's is kept, complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    _write_new(made, text)
    try:
        with suppress(FileExistsError):
            path.hardlink_to(made)
    finally:
        made.unlink()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from its first moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    _write_new(path, text + "\n")


def _write_new(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
