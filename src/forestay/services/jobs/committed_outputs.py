"""Locates the outputs of a job, and only of a proven commit.

A read may show a commit that the store is about to roll back; a consumer of those outputs would later see others. So the
document is confirmed by an acknowledged write before the outputs are returned, unless its commit was acknowledged here.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import ClassVar

from forestay.domain.jobs.claim import confirm
from forestay.domain.jobs.job_document import AttemptResult, JobDocument
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Stored
from forestay.services.shared.checked_writer import ProposedWrite, WriteApplied, WriteListener, Writer, WriteUnsettled


@dataclass(slots=True)
class CommittedOutputs(WriteListener):
    """The service; one a server."""

    part: ClassVar[str] = "winner"
    writer: Writer
    remember: int = 100_000
    _proven: OrderedDict[str, AttemptResult] = field(default_factory=OrderedDict)

    def notice(self, stored: Stored) -> None:
        """Called for each document with committed outputs that is written and acknowledged in this process."""
        if stored.document.winner is not None:
            self._proven[stored.document.id] = stored.document.winner
            while len(self._proven) > self.remember:
                self._proven.popitem(last=False)

    async def winner(self, stored: Stored) -> AttemptResult | None:
        """The result that counts of a job as read; None while there is none. `Transient` if it cannot be proven now."""
        if stored.document.winner is None:
            return None
        proven = self._proven.get(stored.document.id)
        if proven is not None:
            return proven
        (answer,) = await self.writer.write(
            [ProposedWrite(stored.document.id, _confirm, lambda _document: False, known=stored)]
        )
        if isinstance(answer, WriteUnsettled):
            raise Transient(f"the commit could not be confirmed: {answer.detail}")
        if not isinstance(answer, WriteApplied):
            return None
        self.notice(answer.stored)
        return answer.stored.document.winner


def _confirm(document: JobDocument) -> JobDocument | TransitionRefused:
    return TransitionRefused("the job has no committed outputs") if document.winner is None else confirm(document)
