"""The exit codes of the command line: an interface, kept for ever (docs/decisions/0012-command-line-conventions-and-exit-codes.md)."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit code for scripts."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    CONFLICT = 5
    UNAVAILABLE = 6
    TIMEOUT = 7
    JOB_FAILED = 8
    INTERRUPTED = 130
