"""What the slots of a pilot share for staging: the host's single flights, the cache if there is one, and the output target."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.staging.bring import said
from forestay_pilot.staging.checkpoints import CheckpointSaver, Report, checkpoint_inputs, remove_checkpoints
from forestay_pilot.staging.outputs import OutputFailedError, OutputManifest, commit_outputs
from forestay_pilot.staging.stage_out import OutputStorage, Sign, store_outputs
from forestay_pilot.staging.staging import InputCache, StagingError, inside, stage_in
from forestay_pilot.staging.task_outputs import bring_outputs

if TYPE_CHECKING:
    from forestay_pilot.link.held_claims import ClaimInHand
    from forestay_pilot.process.payload import ClaimedJob
    from forestay_pilot.staging.single_flight import SingleFlight

log = logging.getLogger("forestay_pilot")

_LOST = ("data-missing", "data-corrupt")


class Stager:
    """Brings the inputs and outputs of claimed jobs. For any thread."""

    def __init__(
        self,
        flight: SingleFlight,
        *,
        cache_for: Callable[[ClaimInHand], InputCache],
        outputs: str,
        sign: Sign,
        report: Report,
    ) -> None:
        self._outputs = outputs
        self._sign = sign
        self._report = report
        self._flight = flight
        self._cache_for = cache_for

    def bring(self, held: ClaimInHand, folder: str) -> None:
        """Bring all inputs of a job into its folder. Raises StagingError and StoppedError; how each came is noted on the claim."""
        job = held.job
        begun = self._begin_from(held, folder) if job.begin_from else frozenset()
        inputs = [input_ for input_ in job.inputs if input_.get("name") not in begun]
        if not inputs:
            return
        stage_in(
            inputs,
            folder,
            sequential=job.sequential,
            stopped=lambda: bool(held.stop_why),
            cache=self._cache_for(held),
            flight=self._flight,
            note=held.staged.append,
        )

    def _begin_from(self, held: ClaimInHand, folder: str) -> frozenset[str]:
        """Bring the checkpoint with which a job begins; the names of its files. One that is lost is none: the job begins anew."""
        inputs: list[dict[str, Any]] = []
        try:
            inputs = checkpoint_inputs(held.job.begin_from)
            stage_in(inputs, folder, sequential=False, stopped=lambda: bool(held.stop_why), flight=self._flight)
        except StagingError as error:
            if error.reason not in _LOST:
                raise
            log.warning("job %s begins without its checkpoint: %s", held.job.job, error)
            held.staged.append({"name": "checkpoint", "kind": "checkpoint", "failed": [said(str(error))]})
            for input_ in inputs:
                with contextlib.suppress(OSError, StagingError):
                    os.unlink(inside(folder, str(input_.get("name"))))
            return frozenset()
        return frozenset(str(input_.get("name")) for input_ in inputs)

    def checkpoints(self, held: ClaimInHand, folder: str) -> CheckpointSaver | None:
        """What commits the checkpoints of a job while it runs; nothing for a job without any."""
        policy = held.job.checkpoint
        if policy is None:
            return None

        def commit(job: ClaimedJob, patterns: list[str]) -> OutputManifest:
            # Other stops than a cancel are what checkpoints are for.
            return self._commit(job, folder, patterns, stopped=lambda: held.stop_why == "cancelled")

        return CheckpointSaver(
            held.job, folder, commit=commit, report=self._report, outputs=self._outputs, every=policy.every
        )

    def remove_checkpoints(self, job: ClaimedJob) -> None:
        """Remove what a job that succeeded does not continue from any more, where that is this pilot's business."""
        remove_checkpoints(job, self._outputs)

    def bring_outputs(self, held: ClaimInHand, folder: str) -> dict[str, Any]:
        """Bring the committed outputs of a task to the places that its claim names. Raises OutputFailedError and StoppedError."""
        job = held.job
        if "refused" in job.task:
            raise OutputFailedError(str(job.task["refused"]), error="policy")
        stopped = lambda: bool(held.stop_why)  # noqa: E731
        return bring_outputs(job.task["bring"], folder, sign=lambda files: self._sign(job, files), stopped=stopped)

    def commit(self, held: ClaimInHand, folder: str, patterns: list[str]) -> OutputManifest:
        """Store the declared outputs of a job where its claim says, else in the pilot's own folder.

        Raises OutputMissingError, OutputFailedError, and StoppedError from a transfer that is no longer needed.
        """
        return self._commit(held.job, folder, patterns, stopped=lambda: bool(held.stop_why))

    def _commit(
        self, job: ClaimedJob, folder: str, patterns: list[str], *, stopped: Callable[[], bool]
    ) -> OutputManifest:
        if not job.outputs_to:
            return commit_outputs(job, folder, patterns, self._outputs)
        element = OutputStorage.read(job.outputs_to)
        return store_outputs(job, folder, patterns, element, sign=self._sign, stopped=stopped)
