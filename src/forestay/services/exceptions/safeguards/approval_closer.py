"""Returns to the inbox what was not approved, because it was rejected or nobody answered in time.

Else an incident whose rule may not act alone would stand in the inbox as one that somebody has to agree to, with nothing left that could be agreed to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.inbox import APPROVAL, asks_approval
from forestay.domain.exceptions.incidents.incident import IncidentState
from forestay.domain.exceptions.safeguards.approval_policy import ApprovalStage
from forestay.ports.clock import Clock
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.services.exceptions.safeguards.approvals import ApprovalRecord, Approvals
from forestay.services.shared.polling import poll_forever

OVER = frozenset({ApprovalStage.REFUSED, ApprovalStage.EXPIRED})


@dataclass(slots=True)
class ApprovalCloser:
    """The service. It is called when a request is refused; reconcilers look for unfinished and expired ones."""

    approvals: Approvals
    incidents: IncidentStore
    clock: Clock
    every: float = 60.0
    troubled: Callable[[str], None] = lambda _text: None

    async def run(self) -> None:
        await poll_forever(self.look, self.every, self.troubled)

    async def look(self) -> None:
        """Close the requests of the last days that are over."""
        await self.close(await self.approvals.asked_lately())

    async def close(self, requests: Sequence[ApprovalRecord]) -> None:
        """Say where the incidents stand now, if what was asked for is a rule's decision and came to nothing."""
        over = {
            (str(act["incident"]), act["n"]): request
            for request in requests
            if request.stage in OVER and (act := request.asking.act).get("kind") == "decision"
        }
        if not over:
            return
        stored, now = await self.incidents.get_statuses(sorted({name for name, _ in over})), self.clock.now()
        moved = [
            (other_stored.status.moved(IncidentState.HELD, now=now, note=_words(known)), other_stored.version)
            for name, other_stored in stored.items()
            if (known := over.get((name, other_stored.status.n))) is not None and asks_approval(other_stored.status)
        ]
        if moved:
            await self.incidents.put_statuses(moved)


def _words(known: ApprovalRecord) -> str:
    what, _, _ = known.asking.words.partition(":")
    answer = known.answered
    if answer is None:
        return f"the request for the rule's action expired ({what})"
    why = f": {answer.why}" if answer.why else ""
    # By these words an incident is told from one that waits for an answer, whatever somebody gives as a reason.
    return f"{answer.by} rejected the rule's action ({what}){why}".replace(APPROVAL, "asks for an approval")
