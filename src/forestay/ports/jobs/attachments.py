"""Files attached to a run, stored where its jobs can read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Attachments(Protocol):
    """The port.

    The law: names were checked before they come here, and an adapter still lets none lead out of the folder. The same files are the same folder, whole or
    not there at all: a repeat changes nothing. `Permanent` where this domain keeps no attachments; `Transient` where they cannot be written now.
    """

    async def keep(self, tenant: str, files: Mapping[str, bytes]) -> Mapping[str, str]:
        """Put the files down; the place of each by its name."""
        ...
