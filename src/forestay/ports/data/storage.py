"""Storage elements as the server uses them: to sign addresses for pilots, read a manifest, remove leftover files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from forestay.domain.data.storage_element import StorageElement


class Credentials(NamedTuple):
    """References to an element's credentials, never their values: `env:NAME` or `file:PATH` each."""

    key: str
    secret: str
    region: str = "us-east-1"


class Signer(Protocol):
    """Creates URLs that are valid for one file, one method and a short time."""

    def sign(self, element: StorageElement, method: Literal["GET", "PUT", "DELETE"], url: str, seconds: int) -> str:
        """The signed URL. `Permanent` without the element's credentials; no message contains them."""
        ...


class ElementFiles(Protocol):
    """Files that are reached by one kind of protocol."""

    async def read(self, place: str, most: int) -> bytes | None:
        """The file's content; None if it does not exist. `Transient` if that is unknown now, `Permanent` if it is larger than `most`."""
        ...

    async def folders(self, place: str) -> Sequence[str]:
        """The names of the folders in a folder; none if it does not exist. `Permanent` where folders cannot be listed."""
        ...

    async def clear(self, place: str) -> int:
        """Delete a folder with everything in it and return how many bytes that was. `Permanent` where that cannot be done."""
        ...

    async def remove(self, place: str, within: str) -> bool:
        """Delete a file and return whether it existed. Below `within` no link to a folder is followed. `Transient` if that is unknown now."""
        ...
