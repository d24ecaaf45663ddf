"""The four errors a port may raise. Each says whether trying again can help.

Vendor errors are translated by a table at the edge of each adapter. What a caller must handle as a matter of
course (a conflict on a claim, an unknown outcome) is a value, not one of these.
"""

from __future__ import annotations

from collections.abc import Sequence


class PortError(Exception):
    """Something outside did not do what was asked."""


class Transient(PortError):
    """The outside did not answer, or not now; the same call may go through later."""


class Permanent(PortError):
    """Trying again as it is cannot help: the request or the set-up is wrong."""


class Unreadable(Permanent):
    """Requested documents exist and cannot be read: corrupt, or written by a release that this one does not know.

    `names` are the ids as they were asked for. The others of the same call can still be read: ask again without these.
    """

    def __init__(self, names: Sequence[str], what: str) -> None:
        super().__init__(f"{what} cannot be read: {', '.join(names[:5])}{'…' if len(names) > 5 else ''}")
        self.names = tuple(names)


class Conflict(PortError):
    """Another version of the document, or another document, exists already."""


class NotFound(PortError):
    """There is no such thing."""
