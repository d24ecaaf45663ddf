"""Storage elements as the server uses them: to sign addresses for pilots, read a manifest, remove leftover files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from forestay.domain.data.storage_element import StorageElement


class Credentials(NamedTuple):
    """Where an element's credentials are, never what they are: `env:NAME` or `file:PATH` each."""

    key: str
    secret: str
    region: str = "us-east-1"


class Signer(Protocol):
    """Creates URLs that are valid for one file, one method and a short time."""

    def sign(self, element: StorageElement, method: Literal["GET", "PUT", "DELETE"], url: str, seconds: int) -> str:
        """The signed address. `Permanent` without the element's credentials; they are in nothing that this says."""
        ...


class ElementFiles(Protocol):
    """Files behind one kind of door."""

    async def read(self, place: str, most: int) -> bytes | None:
        """The file; None if it is not there. `Transient` if that cannot be said now, `Permanent` if it is larger than asked for."""
        ...

    async def folders(self, place: str) -> Sequence[str]:
        """The names of the folders in a folder; none if it is not there. `Permanent` where folders cannot be listed."""
        ...

    async def clear(self, place: str) -> int:
        """Take a folder away with all that is in it; how many bytes that was. `Permanent` where that cannot be done."""
        ...

    async def remove(self, place: str) -> bool:
        """Take a file away; whether it was there. `Transient` if that cannot be said now."""
        ...
