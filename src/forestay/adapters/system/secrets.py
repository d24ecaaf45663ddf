"""Secrets from environment variables and files."""

from __future__ import annotations

import os
from pathlib import Path

from forestay.ports.errors import Transient


class ReferencedSecrets:
    """Implements `ports.secrets.Secrets`."""

    def read(self, reference: str) -> str:
        kind, _, where = reference.partition(":")
        try:
            text = os.environ[where] if kind == "env" else Path(where).read_text(encoding="utf-8").strip()
        except (OSError, KeyError, UnicodeDecodeError) as error:
            raise Transient(f"the secret at {reference} cannot be read: {_why(error)}") from None
        if not text:
            raise Transient(f"the secret at {reference} is empty")
        return text


def _why(error: Exception) -> str:
    """The reason of an error, without any of the content read."""
    if isinstance(error, OSError):
        return error.strerror or "it cannot be opened"
    return "the variable is not set" if isinstance(error, KeyError) else "it is not text"
