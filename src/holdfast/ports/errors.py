"""The four errors a port may raise. Each says whether trying again can help.

Vendor errors are translated by a table at the edge of each adapter. What a caller must handle as a matter of
course (a conflict on a claim, an unknown outcome) is a value, not one of these.
"""

from __future__ import annotations


class PortError(Exception):
    """Something outside did not do what was asked."""


class Transient(PortError):
    """The outside did not answer, or not now; the same call may go through later."""


class Permanent(PortError):
    """Trying again as it is cannot help: the request or the set-up is wrong."""


class Conflict(PortError):
    """Something else stands where this should go."""


class NotFound(PortError):
    """There is no such thing."""
