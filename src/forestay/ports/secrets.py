"""Secrets by reference: a document or a setting says where a secret is, never its value."""

from __future__ import annotations

from typing import Protocol


class Secrets(Protocol):
    """The port."""

    def read(self, reference: str) -> str:
        """The secret at `env:NAME` or `file:PATH`, read on every call, so that it can be changed; `Transient` if it does not exist. No message quotes it."""
        ...
