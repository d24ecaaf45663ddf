"""Secrets, as configured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from forestay.adapters.system.secrets import ReferencedSecrets


def secret_at(reference: str | None) -> Callable[[], str] | None:
    """A function that reads a secret each time it is needed; None if none is configured."""
    return partial(ReferencedSecrets().read, reference) if reference else None
