"""Files attached to a run, stored where its jobs can read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Attachments(Protocol):
    """The port.

    The contract: callers check names, and an adapter still lets none lead out of the folder. The same files give the same folder, complete or
    absent: a repeat changes nothing. `Permanent` where this domain keeps no attachments; `Transient` where they cannot be written now.
    """

    async def keep(self, tenant: str, files: Mapping[str, bytes]) -> Mapping[str, str]:
        """Store the files and return the path of each by its name."""
        ...
