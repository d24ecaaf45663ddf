"""What all transports have in common: source, procedure, and errors.

A *source* is one place a file can be had from, a *sink* one place it can be brought to; both are written as claims write them. *Terms* are
the parameters of a transfer, which a rule may change for the next attempt. An error says whether the same transfer may go better in a moment.
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass, field
from typing import Any, Callable
from urllib.parse import unquote, urlsplit, urlunsplit

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The disk has no room."""


class StagingError(Exception):
    """A file could not be staged; the reason is the failure's."""

    def __init__(
        self,
        reason: str,
        words: str,
        *,
        again: bool = False,
        error: str = "",
        file: str = "",
        failed: tuple[str, ...] = (),
    ) -> None:
        super().__init__(words)
        self.reason = reason
        self.error = error  # as the system or the server calls it: ENOENT, HTTP 404, S3 SlowDown
        self.file = file  # the input or output
        self.again = again  # whether the same transfer may go better in a moment
        self.wait = 0.0  # seconds requested by the server
        self.failed = failed  # the error of each place, in order


class StoppedError(Exception):
    """The job was stopped meanwhile."""


@dataclass(frozen=True)
class TransferTerms:
    """How a transfer is carried out."""

    timeout: float = 30.0
    piece: int = 1 << 20
    tries: int = 3
    protocol: str = ""  # the kind of source to prefer

    @classmethod
    def read(cls, spec: object, *, tries: int = 3) -> TransferTerms:
        """The terms of a claim; what is missing or makes no sense is as usual, and nothing leaves its bounds."""
        spec_data = spec if isinstance(spec, dict) else {}
        return cls(
            timeout=min(3600.0, max(0.1, _number(spec_data.get("timeout"), 30.0))),
            piece=int(min(64 << 20, max(1 << 14, _number(spec_data.get("piece"), 1 << 20)))),
            tries=int(min(50, max(1, _number(spec_data.get("tries"), tries)))),
            protocol=str(spec_data.get("protocol") or ""),
        )


def _number(value: object, usual: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else usual


@dataclass(frozen=True)
class FileLocation:
    """Where a file is, or goes to."""

    kind: str  # file, http, s3, root, peer
    at: str  # a path or an address
    private: bool = False  # whether its name may resolve to private addresses
    element: str = ""  # the storage element, if it is one that the servers know
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, spec: dict[str, Any]) -> FileLocation:
        """A source as a claim names it."""
        kind = str(spec.get("kind"))
        private = spec.get("private") is True or kind == "peer"  # a server that names a peer vouches for its address
        ticket = spec.get("ticket")
        return cls(
            kind=kind,
            at=str(spec.get("path") if kind == "file" else spec.get("url")),
            private=private,
            element=str(spec.get("element") or ""),
            headers={"Authorization": f"Ticket {ticket}"} if kind == "peer" and isinstance(ticket, str) else {},
        )

    @classmethod
    def of_source(cls, source: str, *, private: bool) -> FileLocation:
        """The place that the text of an input names."""
        scheme = source.partition(":")[0] if "://" in source or source.startswith("file:") else ""
        if scheme in ("http", "https"):
            return cls("http", source, private)
        if scheme in ("root", "roots", "xroot", "xroots"):
            return cls("root", source, private)
        return cls("file", unquote(urlsplit(source).path) if scheme == "file" else source)

    def __str__(self) -> str:
        """As it may be shown: what signs an address is left out."""
        if self.kind == "file":
            return self.at
        parts = urlsplit(self.at)
        shown = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        return f"{shown} ({self.element})" if self.element else shown


@dataclass
class TransferContext:
    """One transfer under way, as those who carry it out see it."""

    terms: TransferTerms
    stopped: Callable[[], bool]
    ca_file: str | None = None

    def go_on(self) -> None:
        """Raises StoppedError when the file is no longer needed."""
        if self.stopped():
            raise StoppedError

    def pause(self, seconds: float) -> None:
        """Wait, unless the file is no longer needed."""
        until = time.monotonic() + seconds
        while True:
            self.go_on()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.2))


@dataclass(frozen=True)
class TransferredFile:
    """A file that has been transferred."""

    sha256: str
    bytes: int
    kind: str
    element: str = ""
    seconds: float = 0.0
    tries: int = 1
    failed: tuple[str, ...] = ()  # what went wrong on the way, in order
    origin: str = "element"  # or cache, neighbour, peer
