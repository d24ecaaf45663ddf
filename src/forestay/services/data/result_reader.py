"""Reads small results wherever outputs are: on the shared file system, or on a storage element."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.ports.errors import Permanent
from forestay.ports.jobs.results import MAX_RESULT, Results
from forestay.services.data.storage_access import StorageAccess, element_path


@dataclass(slots=True)
class ResultReader:
    """The service; implements the port `Results`. Callers check that the folder is the attempt's own."""

    own: Results
    elements: StorageAccess

    async def read(self, folder: str, name: str, most: int = MAX_RESULT) -> bytes | None:
        where = element_path(f"{folder}/{name}")
        if where is None:
            return await self.own.read(folder, name, most)
        element = self.elements.elements.get(where.element)
        if element is None:
            return None
        try:
            return await self.elements.read(element, where.path, most)
        except Permanent:
            return None
