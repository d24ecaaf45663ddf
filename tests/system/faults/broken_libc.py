"""A C library that lies to all processes of one host: a clock that is off, a host that slept, a disk that refuses to write."""

from __future__ import annotations

import mmap
import struct
import subprocess
import time
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
CLOCKS, CALLS = struct.Struct("5d"), struct.Struct("4i128s")
FSYNC, WRITE = 1, 2


class BrokenLibc:
    """One such library, and what it says from now on."""

    def __init__(self, folder: Path) -> None:
        place, plan = folder / "etc", folder / "broken_libc.plan"
        place.mkdir(parents=True)
        library = folder / "broken_libc.so"
        words = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", f'-DPLAN="{plan}"', "-o", str(library)]
        subprocess.run([*words, str(SOURCE)], check=True)
        (place / "ld.so.preload").write_text(f"{library}\n")
        plan.write_bytes(bytes(CLOCKS.size + CALLS.size))
        with plan.open("r+b") as file:
            self._plan = mmap.mmap(file.fileno(), CLOCKS.size + CALLS.size)
        self.prepare = f"mount -t overlay overlay -o lowerdir={place}:/etc /etc"
        """The shell line after which every program in these file systems loads it."""

    def clocks(self, *, asleep: float = 0.0, wall: float = 0.0, gain: float = 0.0) -> None:
        """The host has slept so long, its wall clock is off by so much, and its clocks gain so much in each second from now on."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME), time.clock_gettime(time.CLOCK_REALTIME)
        self._plan[: CLOCKS.size] = CLOCKS.pack(asleep, wall, gain, *now)

    def refuse(self, call: int, error: int, ends: str, times: int) -> None:
        """So many of these calls fail, on files whose path ends so."""
        self._plan[CLOCKS.size :] = CALLS.pack(call, error, times, 0, ends.encode())

    @property
    def hits(self) -> int:
        """How many calls have failed since."""
        return int(CALLS.unpack(self._plan[CLOCKS.size :])[3])
