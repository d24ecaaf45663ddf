"""Why a secret could not be given to a job, as the servers are told it."""

from __future__ import annotations

NOT_FOUND, NOT_ALLOWED, UNFIT, DENIED, UNREACHABLE, INSECURE, NO_SOURCE, UNEXPECTED = (
    "not-found", "not-allowed", "unfit", "denied", "unreachable", "insecure", "no-source", "unexpected",
)  # fmt: skip


class SecretError(Exception):
    """A secret cannot be had; ``error`` is one of the words above. Its text never contains a value."""

    def __init__(self, error: str, words: str, reference: str = "") -> None:
        super().__init__(words)
        self.error = error
        self.reference = reference
