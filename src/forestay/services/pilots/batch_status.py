"""The state of the batch jobs in which pilots run, as the site agent records it on their launches.

The end of a batch job ends its pilot and all its processes, so the pilot's claims are free at once and certainly not running. A job that
the batch system only gave up (its node failed) may continue to run; from missing information nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forestay.domain.exceptions.evidence.evidence import Evidence, lost_with, with_batch_word
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.pilots.pilot import PilotState
from forestay.domain.sites.launch import Launch, LaunchState
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.jobs.claim_releaser import ClaimReleaser
from forestay.services.pilots.pilot_launches import PilotLaunches

MOST_LOST = 3
"""The most lost pilots of a job whose batch jobs are read, newest first."""


@dataclass(slots=True)
class BatchStatus:
    """The service. Its calls raise `Transient` when the store does not answer."""

    pilots: PilotStore
    launches: PilotLaunches
    release: ClaimReleaser
    freed: int = 0
    """Claims released on the batch system's report."""

    async def of(self, pilots: Iterable[str]) -> dict[str, Launch]:
        """The launches of these pilots; pilots without a launch are left out."""
        launches: dict[str, Launch] = {}
        for other_pilot in pilots:
            stored = await self.pilots.get_pilot(other_pilot)
            if stored is None or not stored.pilot.launch:
                continue
            pilot = stored.pilot
            launch = await self.launches.get(pilot.tenant, pilot.site, pilot.launch)
            if launch is not None and launch.pilot == other_pilot:
                launches[other_pilot] = launch
        return launches

    async def over(self, launches: Sequence[Launch]) -> None:
        """Release at once the claims of pilots whose batch jobs have certainly ended, and mark the pilots as gone."""
        for launch in launches:
            if not dead(launch) or not launch.pilot:
                continue
            freed = await self.release.of_pilots(
                [launch.pilot], by="batch system", reason=in_words(launch), overlap_possible=False
            )
            self.freed += freed
            stored = await self.pilots.get_pilot(launch.pilot)
            if stored is not None and stored.pilot.state is not PilotState.GONE:
                await self.release.mark(launch.pilot, PilotState.GONE, in_words(launch))

    async def end(self, launch: Launch) -> None:
        """Order the site's agent to cancel a launch's batch job."""
        await self.launches.cancel(launch)

    async def joined(self, document: JobDocument, evidence: Evidence) -> Evidence:
        """The evidence of a job that was lost with its pilots, with the batch system's report on the newest pilot that it knows."""
        for pilot, launch in (await self.of(lost_with(document)[:MOST_LOST])).items():
            if launch.end is not None:
                return with_batch_word(
                    evidence, word=launch.end.word, reason=launch.end.reason, nodes=launch.end.nodes, pilot=pilot,
                    batch_job=launch.batch_job,
                )  # fmt: skip
        return evidence


def dead(launch: Launch) -> bool:
    """Whether the batch system reported that it is over and nothing of it runs."""
    return launch.state is LaunchState.ENDED and launch.end is not None and not launch.end.lost


def in_words(launch: Launch) -> str:
    """How the batch job of a pilot ended, on one line."""
    end = launch.end
    if end is None:
        return "its pilot's batch job did not end"
    reason = f" ({end.reason[:200]})" if end.reason else ""
    return f"batch job {launch.batch_job or launch.job_name} of its pilot ended: {end.word}{reason}"
