"""What the slots of a pilot share for bringing inputs: the host's single flights, and the cache if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from holdfast_pilot.staging import InputCache, stage_in

if TYPE_CHECKING:
    from holdfast_pilot.held_claims import Held
    from holdfast_pilot.single_flight import SingleFlight


class Stager:
    """Brings the inputs of claimed jobs. For any thread."""

    def __init__(self, flight: SingleFlight, *, cache_for: Callable[[Held], InputCache]) -> None:
        self._flight = flight
        self._cache_for = cache_for

    def bring(self, held: Held, folder: str) -> None:
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
