"""Sessions for browsers: a link that logs in once, traded for a token that can only look.

The link carries a secret of which the store keeps the digest alone. Whoever comes with it first, in time, gets the session; the same
version-checked write that gives claims away sees to it that there is no second one, whichever servers are asked.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.ports.clock import Clock, Ids
from holdfast.ports.errors import Transient
from holdfast.ports.identity import BadToken, Identity, Principal, Role
from holdfast.ports.job_store import Unknown, Written
from holdfast.ports.slip_store import Slip, SlipStore

KIND = "login"
LINK_SECONDS = 600
SESSION_SECONDS = 12 * 3600
REFUSED = "this link was used, has expired, or never was; `holdfast link` makes a new one"
"""Which of the three is nobody's business."""


class Invitation(NamedTuple):
    """What a link carries, and until when it is good (milliseconds since 1970)."""

    once: str
    expires: int


@dataclass(slots=True)
class OpenSessions:
    """The service."""

    slips: SlipStore
    clock: Clock
    ids: Ids
    identity: Identity

    async def invite(self, *, subject: str, tenant: str) -> Invitation:
        """A link for somebody; `Transient` if the store did not take it for sure."""
        once = self.ids.claim() + self.ids.claim()
        expires = self.clock.now() + 1000 * LINK_SECONDS
        body = {"subject": subject, "expires": expires, "used": False}
        (written,) = await self.slips.put([(Slip(_name(once), tenant, KIND, body), None)])
        if not isinstance(written, Written):
            raise Transient("the link could not be kept; ask again")
        return Invitation(once, expires)

    async def redeem(self, once: str) -> tuple[str, Principal]:
        """Trade a link's secret for a session's token, once; `BadToken` otherwise."""
        name = _name(once)
        stored = (await self.slips.get([name])).get(name)
        if stored is None or stored.slip.body["used"] or self.clock.now() >= int(str(stored.slip.body["expires"])):
            raise BadToken(REFUSED)
        slip = stored.slip
        (written,) = await self.slips.put([(slip._replace(body={**slip.body, "used": True}), stored.version)])
        if isinstance(written, Unknown):
            raise Transient("the store did not say clearly whether the link was taken; try it again, or make a new one")
        if not isinstance(written, Written):
            raise BadToken(REFUSED)
        token = self.identity.issue(
            subject=str(slip.body["subject"]),
            tenant=slip.tenant,
            roles=frozenset({Role.VIEWER}),
            seconds=SESSION_SECONDS,
        )
        return token, self.identity.verify(token)


def _name(once: str) -> str:
    return f"{KIND}:{hashlib.sha256(once.encode()).hexdigest()}"
