"""The names of POSIX signals by Linux' numbers, on whatever machine the evidence is read."""

from __future__ import annotations

NUMBERS = {
    "HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "IOT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "USR1": 10,
    "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16, "CHLD": 17, "CLD": 17, "CONT": 18, "STOP": 19,
    "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28, "IO": 29,
    "POLL": 29, "PWR": 30, "SYS": 31,
}  # fmt: skip


def number_of(name: str) -> int | None:
    """``SIGKILL``, ``sigkill``, ``KILL`` or ``9``."""
    text = name.strip().upper().removeprefix("SIG")
    if text.isdecimal():
        return int(text) if 0 < int(text[:9]) <= 64 else None
    return NUMBERS.get(text)
