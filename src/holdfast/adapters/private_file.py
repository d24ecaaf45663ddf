"""Files that hold a secret are their owner's alone."""

from __future__ import annotations

import stat
from pathlib import Path

from holdfast.ports.errors import Permanent


def open_to_others(path: Path) -> bool:
    """Whether anyone but its owner may read or change a file."""
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def must_be_private(path: Path, why: str) -> None:
    """`Permanent`, with what to do, if a file can be read by others; `why` that is bad."""
    if open_to_others(path):
        raise Permanent(f"{path} can be read by others: {why}. Run: chmod 600 {path}")
