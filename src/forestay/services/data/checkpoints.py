"""Saves checkpoints of running jobs, and removes those that nobody continues from any more.

A checkpoint counts when the version-checked job document names it, so what a superseded claim still reports changes nothing. Only
the newest is kept. Its files are removed when the job succeeds; those of a job that failed stay until space is needed, as what
its attempts left behind does. Files in a pilot's own folder are removed by the pilot: the server does not see them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from forestay.domain.jobs.claim import CheckpointReport, save_checkpoint
from forestay.domain.jobs.claim_access import held_by
from forestay.domain.jobs.job_document import JobDocument, Manifest, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent, PortError
from forestay.ports.jobs.job_store import Stored
from forestay.services.data.storage_access import StorageAccess, element_path
from forestay.services.data.storage_cleaner import remove_attempt
from forestay.services.shared.background_tasks import BackgroundTasks
from forestay.services.shared.checked_writer import Answer, ProposedWrite, WriteListener, Writer


@dataclass(slots=True)
class Checkpoints(WriteListener):
    """The service; one a server."""

    part: ClassVar[str] = "checkpoint"
    writer: Writer
    elements: StorageAccess
    clock: Clock
    troubled: Callable[[str], None] = lambda _text: None
    remember: int = 10_000
    _removed: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _background: BackgroundTasks = field(default_factory=BackgroundTasks)

    async def save(self, job: str, report: CheckpointReport, *, claim: str, pilot: str, tenant: str) -> Answer:
        """A pilot has committed the files of a checkpoint; the document that answers names the one that counts."""
        now = self.clock.now()

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            if document.tenant != tenant:
                return TransitionRefused("there is no such job")
            return save_checkpoint(document, report, claim_id=claim, now=now, by=pilot)

        def already_applied(document: JobDocument) -> bool:
            checkpoint = document.checkpoint
            same = checkpoint is not None and checkpoint.manifest == report.manifest
            return document.tenant == tenant and same and held_by(document, claim, pilot) is not False

        (answer,) = await self.writer.write([ProposedWrite(job, decide, already_applied)])
        return answer

    def notice(self, stored: Stored) -> None:
        """A document was written: what it does not continue from any more is removed."""
        checkpoint = stored.document.checkpoint
        if checkpoint is None:
            return
        self._remove(stored.document.tenant, checkpoint.replaced)
        if stored.document.state is State.COMPLETED:
            self._remove(stored.document.tenant, checkpoint.manifest)

    def _remove(self, tenant: str, manifest: Manifest | None) -> None:
        if manifest is None or element_path(manifest.path) is None or manifest.path in self._removed:
            return
        self._removed[manifest.path] = None
        while len(self._removed) > self.remember:
            self._removed.popitem(last=False)
        self._background.begin(self._remove_files(tenant, manifest))

    async def _remove_files(self, tenant: str, manifest: Manifest) -> None:
        with suppress(Permanent):  # it is gone already
            try:
                await remove_attempt(self.elements, tenant, manifest)
            except PortError as error:
                self.troubled(f"the checkpoint {manifest.path} could not be removed: {error}")
