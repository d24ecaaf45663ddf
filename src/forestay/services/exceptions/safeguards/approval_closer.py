"""Returns to the inbox what was not approved, because it was rejected or nobody answered in time.

Otherwise an incident whose rule needs approval would wait in the inbox for an approval that can no longer be given.
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
        """Close the ended requests of the last days."""
        await self.close(await self.approvals.asked_lately())

    async def close(self, requests: Sequence[ApprovalRecord]) -> None:
        """Update the incidents of requests for a rule's decision that were not approved."""
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
    # These words distinguish an incident that waits for an approval, so the given reason must not contain them.
    return f"{answer.by} rejected the rule's action ({what}){why}".replace(APPROVAL, "asks for an approval")
