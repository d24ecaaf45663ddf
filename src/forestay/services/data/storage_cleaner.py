"""Frees space on a storage element: removes what lost attempts of completed jobs left there. Published files are never touched.

An attempt has lost when its job is final and has committed another attempt, or none. Files of jobs that have not ended stay: a late completion may still count.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from forestay.domain.data.storage_element import StorageElement
from forestay.domain.jobs.job_document import FINAL, JobDocument, Manifest
from forestay.formats.jobs.job_json import ending_from_json
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.services.data.storage_access import StorageAccess, element_path
from forestay.services.shared.record_pages import record_pages

BULK = 1_000


@dataclass(slots=True)
class StorageCleaner:
    """The service."""

    store: JobStore
    elements: StorageAccess

    async def free(self, element: StorageElement, tenant: str, size: int) -> int:
        """Try to free this many bytes of a tenant's outputs; returns how many were freed."""
        try:
            freed = await self._folders(element, tenant, size)
        except Permanent:  # its folders cannot be listed; files of known late completions can be removed
            freed = 0
        if freed < size:
            freed += await self._late_completions(element, tenant, size - freed)
        return freed

    async def _folders(self, element: StorageElement, tenant: str, size: int) -> int:
        root = f"{element.outputs}/{tenant}"
        jobs = await self.elements.folders(element, root)
        freed = 0
        for start in range(0, len(jobs), BULK):
            known = await self.store.get(jobs[start : start + BULK])
            for job, stored in known.items():
                document = stored.document
                if document.tenant != tenant or document.state not in FINAL:
                    continue
                kept = _kept(document)
                for attempt in await self.elements.folders(element, f"{root}/{job}"):
                    folder = f"{root}/{job}/{attempt}"
                    if folder != kept:
                        freed += await self.elements.clear(element, folder)
                    if freed >= size:
                        return freed
        return freed

    async def _late_completions(self, element: StorageElement, tenant: str, size: int) -> int:
        """Free space by the completions that came too late: they name their manifests, which name the files."""
        freed = 0
        async with aclosing(record_pages(self.store, kind="late-completion", tenant=tenant, size=BULK)) as pages:
            async for page in pages:
                freed += await self._late_of(page, element, tenant, size - freed)
                if freed >= size:
                    break
        return freed

    async def _late_of(self, records: Sequence[Record], element: StorageElement, tenant: str, size: int) -> int:
        known = await self.store.get(sorted({record.job for record in records}))
        freed = 0
        for record in records:
            body, stored = record.body.get("ending"), known.get(record.job)
            manifest = ending_from_json(body).manifest if isinstance(body, dict) else None
            where = element_path(manifest.path) if manifest is not None else None
            if stored is None or manifest is None or where is None or where.element != element.name:
                continue
            folder = os.path.dirname(where.path)
            own = f"{element.outputs}/{tenant}/{record.job}/"
            lost = stored.document.state in FINAL and folder != _kept(stored.document)
            if lost and folder.startswith(own):
                with suppress(Permanent):  # it is gone already
                    freed += await remove_attempt(self.elements, tenant, manifest)
            if freed >= size:
                break
        return freed


async def remove_attempt(elements: StorageAccess, tenant: str, manifest: Manifest) -> int:
    """Remove the files that a manifest on an element names, and the manifest last; how many bytes they had. `Permanent` if it is gone."""
    files = await elements.listed(tenant, manifest)
    where = element_path(manifest.path)
    assert where is not None  # noqa: S101 - only those on an element can be listed
    element, folder = elements.elements[where.element], os.path.dirname(where.path)
    freed = 0
    for name, about in files.items():
        if await elements.remove(element, f"{folder}/{name}"):
            freed += about.size
    await elements.remove(element, where.path)
    elements.forget(manifest)
    return freed


def _kept(document: JobDocument) -> str | None:
    """The folder named by a job's commit."""
    winner = document.winner
    where = element_path(winner.manifest.path) if winner is not None and winner.manifest is not None else None
    return os.path.dirname(where.path) if where is not None else None
