"""Browser sessions: a link that works once is exchanged for a token with the rights of the person who asked for it, and no longer lifetime.

The link carries a secret of which the store keeps only the digest. The first to present it, in time, gets the session; a
version-checked write as for claims ensures that there is no second one, whichever servers are asked.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from forestay.ports.clock import Clock, Ids
from forestay.ports.documents import Document, DocumentStore
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Unknown, Written
from forestay.ports.operations.identity import BadToken, Identity, Principal, Role
from forestay.services.operations.token_revocations import TokenRevocations

KIND = "login"
LINK_SECONDS = 600
SESSION_SECONDS = 12 * 3600
PEOPLE = frozenset({Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.RULE_AUTHOR, Role.APPROVER, Role.ADMINISTRATOR})
"""The roles that a browser may have; the roles of programs are excluded."""
REFUSED = "this link is used, expired or unknown; `forestay link` creates a new one"
"""The caller must not learn which of the three it is."""


class LoginLink(NamedTuple):
    """The secret of a link, and until when it is valid (milliseconds since 1970)."""

    once: str
    expires: int


@dataclass(slots=True)
class BrowserSessions:
    """The service."""

    documents: DocumentStore
    clock: Clock
    ids: Ids
    identity: Identity
    revocations: TokenRevocations

    async def invite(
        self, *, subject: str, tenant: str, roles: Iterable[Role] = (), until: int | None = None
    ) -> LoginLink:
        """Create a link for a person, with those of the roles that people may have; the session ends at `until` (seconds since 1970) at the latest.

        `Transient` if the store gave no clear answer.
        """
        once = self.ids.claim() + self.ids.claim()
        expires = self.clock.now() + 1000 * LINK_SECONDS
        values = sorted(person.value for person in {Role.VIEWER, *roles} & PEOPLE)
        body = {"subject": subject, "expires": expires, "used": False, "roles": values, "until": until}
        (written,) = await self.documents.put([(Document(_name(once), tenant, KIND, body), None)])
        if not isinstance(written, Written):
            raise Transient("the link could not be stored; try again")
        return LoginLink(once, expires)

    async def redeem(self, once: str) -> tuple[str, Principal]:
        """Exchange a link's secret for a session's token, once; `BadToken` otherwise."""
        name = _name(once)
        stored = (await self.documents.get([name])).get(name)
        if (
            stored is None
            or stored.document.body["used"]
            or self.clock.now() >= int(str(stored.document.body["expires"]))
        ):
            raise BadToken(REFUSED)
        document = stored.document
        made = int(str(document.body["expires"])) // 1000 - LINK_SECONDS
        self.revocations.check_person(document.tenant, str(document.body["subject"]), made)
        (written,) = await self.documents.put(
            [(document._replace(body={**document.body, "used": True}), stored.version)]
        )
        if isinstance(written, Unknown):
            raise Transient("it is unknown whether the link was used; try it again, or create a new one")
        if not isinstance(written, Written):
            raise BadToken(REFUSED)
        roles = document.body.get("roles")
        until = document.body.get("until")
        return self.admit(
            subject=str(document.body["subject"]),
            tenant=document.tenant,
            roles=(Role(role) for role in roles) if isinstance(roles, list) else (Role.VIEWER,),
            until=until if isinstance(until, int) else None,
        )

    def admit(self, *, subject: str, tenant: str, roles: Iterable[Role], until: int | None) -> tuple[str, Principal]:
        """A session's token for an authenticated person, with those of the roles that people may have; `BadToken` if it would have ended already."""
        seconds = SESSION_SECONDS
        if until is not None:
            seconds = min(seconds, until - self.clock.now() // 1000)
        if seconds <= 0:
            raise BadToken(REFUSED)
        token = self.identity.issue(subject=subject, tenant=tenant, roles=frozenset(roles) & PEOPLE, seconds=seconds)
        return token, self.identity.verify(token)


def word_against_forgery(token: str) -> str:
    """The CSRF token that a page sends with every write: it is derived from the session's token, which no other site can read."""
    return urlsafe_b64encode(hashlib.sha256(b"forestay acts\0" + token.encode()).digest()).decode().rstrip("=")


def _name(once: str) -> str:
    return f"{KIND}:{hashlib.sha256(once.encode()).hexdigest()}"
