"""What the slots of a pilot share for staging: the host's single flights, the cache if there is one, and the output target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.staging.outputs import OutputFailedError, OutputManifest, commit_outputs
from forestay_pilot.staging.stage_out import OutputStorage, Sign, store_outputs
from forestay_pilot.staging.staging import InputCache, stage_in
from forestay_pilot.staging.task_outputs import bring_outputs

if TYPE_CHECKING:
    from forestay_pilot.link.held_claims import ClaimInHand
    from forestay_pilot.staging.single_flight import SingleFlight


class Stager:
    """Brings the inputs and outputs of claimed jobs. For any thread."""

    def __init__(
        self, flight: SingleFlight, *, cache_for: Callable[[ClaimInHand], InputCache], outputs: str, sign: Sign
    ) -> None:
        self._outputs = outputs
        self._sign = sign
        self._flight = flight
        self._cache_for = cache_for

    def bring(self, held: ClaimInHand, folder: str) -> None:
        """Bring all inputs of a job into its folder. Raises StagingError and StoppedError; how each came is noted on the claim."""
        job = held.job
        stage_in(
            job.inputs,
            folder,
            sequential=job.sequential,
            stopped=lambda: bool(held.stop_why),
            cache=self._cache_for(held),
            flight=self._flight,
            note=held.staged.append,
        )

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
        if not held.job.outputs_to:
            return commit_outputs(held.job, folder, patterns, self._outputs)
        element = OutputStorage.read(held.job.outputs_to)
        stopped = lambda: bool(held.stop_why)  # noqa: E731
        return store_outputs(held.job, folder, patterns, element, sign=self._sign, stopped=stopped)
