"""Notifies an outside address that a job has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class CallbackTransport(Protocol):
    """The port."""

    def check(self, url: str) -> str | None:
        """Why this address may not be called, or None; checked when a job is submitted, and again before each call."""
        ...

    async def post(self, url: str, body: Mapping[str, object], *, delivery: str) -> None:
        """Send once. `Transient`: try again later; `Permanent`: this address will never accept it.

        Only allowed hosts, every resolved address checked, no redirects, a timeout of a few seconds, a bounded response.
        """
        ...
