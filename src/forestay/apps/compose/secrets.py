"""Secrets, as configured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from forestay.adapters.system.secrets import ReferencedSecrets


def secret_at(reference: str | None) -> Callable[[], str] | None:
    """What reads a secret anew each time it is needed; None where none is named."""
    return partial(ReferencedSecrets().read, reference) if reference else None
