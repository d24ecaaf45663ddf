"""The four errors a port may raise. Each says whether a retry can help.

Vendor errors are translated by a table at the edge of each adapter. What a caller must handle as a matter of
course (a conflict on a claim, an unknown outcome) is a value, not one of these.
"""

from __future__ import annotations

from collections.abc import Sequence


class PortError(Exception):
    """An external system did not do what was requested."""


class Transient(PortError):
    """The external system did not answer, or cannot serve the call now; the same call may succeed later."""


class Permanent(PortError):
    """An unchanged retry cannot help: the request or the set-up is wrong."""


class Unreadable(Permanent):
    """Requested documents exist and cannot be read: corrupt, or written by a release that this one does not know.

    `names` are the ids as they were requested. The others of the same call can still be read: repeat it without these.
    """

    def __init__(self, names: Sequence[str], what: str) -> None:
        super().__init__(f"{what} cannot be read: {', '.join(names[:5])}{'…' if len(names) > 5 else ''}")
        self.names = tuple(names)


class Conflict(PortError):
    """Another version of the document, or another document, exists already."""


class NotFound(PortError):
    """The requested object does not exist."""
