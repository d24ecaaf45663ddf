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
    # Also while it is cleared away: COMPLETING lasts until every node said that nothing of it runs.
    **dict.fromkeys(_RUNNING.split(), BatchState.RUNNING),
    **dict.fromkeys(_ENDED.split(), BatchState.ENDED),
    # The controller no longer hears the node; what ran there may run on.
    "NODE_FAIL": BatchState.LOST,
}
"""A word that is not here is `unknown`: a newer Slurm's word is never guessed."""

TOLD_BY_NODE = frozenset({"COMPLETED", "FAILED", "OUT_OF_MEMORY", "BOOT_FAIL"})
"""Ends that the node itself reported. The others the controller decides, and a node that is down cannot say that it obeyed."""

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
"""The request did not reach a controller that takes jobs: nothing was queued."""

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
"""The talk broke off; the controller may have taken the job."""

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
"""Refusals that may pass: a limit that fills and empties, a partition that is closed for a while, a credential past its minute."""

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
    """Whether one of a table's phrases stands in what Slurm said."""
    low = words.lower()
    return any(phrase in low for phrase in table)


def separator() -> str:
    """What stands between the fields of one answer. Nobody who names a job can know it: a name may hold line ends, and lines that look like those of other
    jobs."""
    return f"~{secrets.token_hex(6)}~"


def one_line(words: str) -> str:
    """What a command complained of, without its own name, on one line of bounded length."""
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
