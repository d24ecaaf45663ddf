"""The task that is lost with its worker: it writes down when it began, and only its first run lasts. Knows the standard library alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

LASTS = 3600.0


def begun(place: str) -> int:
    """One line a run: when, and in which process."""
    path = Path(place)
    with path.open("a") as lines:
        lines.write(f"{time.time()} {os.getpid()}\n")
    runs = len(path.read_text().splitlines())
    if runs == 1:
        time.sleep(LASTS)
    return runs
