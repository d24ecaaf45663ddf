"""The meaning of Slurm's terms: states, refusals, host lists, times."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from datetime import datetime

from forestay.domain.sites.batch import BatchState

_RUNNING = "RUNNING CONFIGURING COMPLETING RESIZING SIGNALING STAGE_OUT STOPPED SUSPENDED"
_WAITING = "PENDING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT"
_ENDED = "COMPLETED FAILED CANCELLED TIMEOUT OUT_OF_MEMORY PREEMPTED DEADLINE BOOT_FAIL REVOKED"

STATES: dict[str, BatchState] = {
    **dict.fromkeys(_WAITING.split(), BatchState.WAITING),
    # Also during its cleanup: COMPLETING lasts until every node reported that nothing of it runs.
    **dict.fromkeys(_RUNNING.split(), BatchState.RUNNING),
    **dict.fromkeys(_ENDED.split(), BatchState.ENDED),
    # The controller lost contact to the node; the job may still run there.
    "NODE_FAIL": BatchState.LOST,
}
"""States by Slurm's terms; other terms are `unknown`: those of a newer Slurm are never guessed."""

TOLD_BY_NODE = frozenset({"COMPLETED", "FAILED", "OUT_OF_MEMORY", "BOOT_FAIL"})
"""Ends reported by the node itself. The controller decides the others, and a node that is down cannot confirm them."""

NOT_SENT = (
    "unable to contact slurm controller (connect failure)",
    "unable to establish control connection",
    "unable to resolve",
    "slurm backup controller in standby mode",
    "munge encode failed",
    "failed to access",
    "could not establish a configuration source",
    "unable to process configuration file",
    "temporarily unable to accept job",
)
"""The request did not reach a controller that accepts jobs: nothing was queued."""

PERHAPS_SENT = (
    "socket timed out",
    "zero bytes were transmitted",
    "connection reset",
    "broken pipe",
    "transport endpoint",
    "unexpected message received",
    "message receive failure",
    "unable to contact slurm controller",
    "unspecified error",
)
"""The connection broke; the controller may have accepted the job."""

LATER = (
    "job violates accounting/qos policy",
    "required partition not available",
    "requested partition not available",
    "job submit limit",
    "resource temporarily unavailable",
    "job queue full",
    "max jobs",
    "reservation",
    "requested nodes are busy",
    "nodes required for job are down",
    "authentication error",
    "invalid authentication credential",
)
"""Temporary refusals: a limit that is reached, a partition that is closed for a while, an expired credential."""

NEVER = (
    "invalid",
    "unrecognized option",
    "does not look like a batch script",
    "not available",
    "can not be satisfied",
    "permission denied",
    "not permitted",
    "more processors requested than permitted",
    "unable to open file",
)
"""Refusals of the job as it is."""


def state_of(word: str) -> tuple[BatchState, str]:
    """Our state, and Slurm's bare word (``CANCELLED by 0`` is ``CANCELLED``)."""
    bare = word.split(" ", 1)[0].rstrip("+").upper()
    return STATES.get(bare, BatchState.UNKNOWN), bare


def said(words: str, table: Iterable[str]) -> bool:
    """Whether Slurm's output contains one of a table's phrases."""
    low = words.lower()
    return any(phrase in low for phrase in table)


def separator() -> str:
    """The separator of fields in one output. It is unpredictable for users who name jobs: a name may contain line ends, and lines that look like those of
    other jobs."""
    return f"~{secrets.token_hex(6)}~"


def one_line(words: str) -> str:
    """The error message of a command, without its own name, on one line of bounded length."""
    lines = [re.sub(r"^\w+: (?:error: |fatal: )?", "", line).strip() for line in words.splitlines()]
    return "; ".join(line for line in lines if line)[:1000]


def seconds_of(text: str) -> int | None:
    """Slurm's local time as seconds since 1970; none for ``Unknown``, ``None``, ``N/A``."""
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return None


def exit_of(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal from accounting's ``3:0`` or the queue's wait status."""
    code, _, signal = text.partition(":")
    if not code.isdigit():
        return None, None
    if not _:
        status = int(code)
        return (None, status & 0x7F) if status & 0x7F else (status >> 8, None)
    died = int(signal) & 0x7F if signal.isdigit() else 0
    return (None, died) if died and code == "0" else (int(code), died or None)
