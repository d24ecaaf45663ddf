"""What a job's document stores about the staging of its files, if that was changed after a failure.

All of it is kept for the rest of the job: a problem with its files may occur again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TRANSFER = "transfer"
"""The parameters of transfers: `timeout` in seconds, `piece` in bytes, `tries`, `protocol`."""
FREE = "free"
"""Bytes that its pilot frees before it stages anything in."""
RESTAGED = "restaged"
"""How often its files were staged in again."""

USUAL_TIMEOUT = 30
USUAL_PIECE = 1 << 20


def transfer_of(extra: Mapping[str, object]) -> dict[str, Any]:
    """The transfer parameters in a document."""
    kept = extra.get(TRANSFER)
    return dict(kept) if isinstance(kept, Mapping) else {}


def free_of(extra: Mapping[str, object]) -> int:
    """The bytes to free first; 0: none."""
    kept = extra.get(FREE)
    return kept if isinstance(kept, int) else 0


def restaged(extra: Mapping[str, object]) -> int:
    kept = extra.get(RESTAGED)
    return kept if isinstance(kept, int) else 0
