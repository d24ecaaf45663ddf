"""The default answer to a failure caused by files, applied before the job's own retry policy: see `domain.playbooks.default_restaging`."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.exceptions.causes.cause import SURE, Cause, CauseFinding
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.pilots.pilot import PilotState
from forestay.domain.playbooks.default_restaging import FileFailure, default_steps
from forestay.domain.playbooks.playbook import Playbook
from forestay.ports.errors import PortError
from forestay.services.exceptions.act.data_actions import DataActions
from forestay.services.exceptions.act.output_remaker import OutputRemaker

_STAGES = ("staging-in", "staging-out")


@dataclass(slots=True)
class FileFailurePolicy:
    """The service."""

    data: DataActions
    remakes: OutputRemaker

    async def answer(self, document: JobDocument, evidence: Evidence, finding: CauseFinding) -> Playbook | None:
        """The default playbook; None: the job's own retry policy answers. Never raises: a failed lookup is no reason to wait."""
        stage = evidence.stage.value if evidence.stage is not None else ""
        if stage not in _STAGES or finding.confidence < SURE:
            return None
        try:
            failure = await self._failure(document, stage, finding)
        except PortError:
            return None
        steps = default_steps(document, failure)
        return Playbook("default", steps) if steps else None

    async def _failure(self, document: JobDocument, stage: str, finding: CauseFinding) -> FileFailure:
        last = document.last
        wanted = await self.data.failed_input(document) if stage == "staging-in" else None
        other = wanted is not None and await self.data.other_replica(document, wanted) is not None
        lost = wanted is not None and await self.remakes.is_lost_output(document, wanted)
        room, several = "", False
        if last is not None and (lost or finding.cause is Cause.DISK):
            alive = await self.data.pilots.find_pilots(tenant=document.tenant, state=PilotState.ALIVE.value)
            several = any(pilot.host != last.host for pilot in alive)
        if finding.cause is Cause.DISK and last is not None:
            room = await self.data.room_at(document)
        size = wanted.size if wanted is not None and wanted.size else 0
        error = (last.error if last is not None else "") or ""
        return FileFailure(stage, finding.cause, error, other, room, several, size, lost)
