"""Revokes tokens before they expire: the one used to log out, or all of a person.

A revocation is a record, by which the other servers learn of it within seconds. A server that starts reads those that can still matter: for sessions
those of the last hours, for longer tokens all.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field

from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.ports.operations.identity import BadToken, Principal
from forestay.services.shared.record_pages import record_pages

SESSION, TOKEN = "ended-session", "revoked-token"
DIFFER = 120_000
"""Milliseconds by which the clocks of two servers may differ, and searches may lag."""
SHORT = 24 * 3600
"""Seconds; no browser's session lasts longer."""
REVOKED = "the token was revoked; log in again, or ask for a new one"


@dataclass(slots=True)
class TokenRevocations:
    """The service; one a process that verifies tokens."""

    store: JobStore
    clock: Clock
    every: float = 1.0
    _tokens: dict[str, int] = field(default_factory=dict)
    """Digests of revoked tokens with their expiry, after which they are forgotten."""
    _people: dict[tuple[str, str], int] = field(default_factory=dict)
    """By tenant and person: tokens issued up to this second are no longer valid."""

    def check(self, token: str, who: Principal) -> None:
        """Raise `BadToken` for a revoked token."""
        # Nearly always there are none, and a digest for each heartbeat would cost time.
        if self._tokens and _digest(token) in self._tokens:
            raise BadToken(REVOKED)
        self.check_person(who.tenant, who.subject, who.issued)

    def check_person(self, tenant: str, subject: str, issued: int) -> None:
        """Raise `BadToken` if a person's tokens issued at that time (seconds since 1970) were revoked."""
        if self._people.get((tenant, subject), -1) >= issued:
            raise BadToken(REVOKED)

    async def end(self, token: str, who: Principal) -> None:
        """Revoke one token on request of its holder; `Transient` if the store does not answer."""
        now = self.clock.now()
        short = who.expires - now // 1000 <= SHORT
        kind, digest = SESSION if short else TOKEN, _digest(token)
        body = {"digest": digest, "subject": who.subject, "expires": who.expires}
        await self._keep(Record(f"{kind}:{digest}", who.tenant, kind, "", now, body))

    async def revoke(self, *, tenant: str, subject: str, by: str, reason: str) -> None:
        """Revoke all tokens issued to a person until now, sessions included; later ones are valid."""
        now = self.clock.now()
        body = {"subject": subject, "until": now // 1000, "by": by, "reason": reason}
        await self._keep(Record(f"{TOKEN}:{tenant}:{subject}:{now}", tenant, TOKEN, "", now, body))

    async def _keep(self, record: Record) -> None:
        await self.store.add_records([record])
        self._hear(record)

    def _hear(self, record: Record) -> None:
        body = record.body
        if "digest" in body:
            self._tokens[str(body["digest"])] = int(str(body["expires"]))
            return
        person = record.tenant, str(body["subject"])
        self._people[person] = max(int(str(body["until"])), self._people.get(person, 0))

    async def look(self, kind: str, since: int) -> None:
        """Read revocations since then."""
        async for page in record_pages(self.store, kind=kind, since=since):
            for record in page:
                self._hear(record)

    async def run(self) -> None:
        """Poll for revocations by other servers until cancelled; after an outage of the store everything is read again."""
        started = False
        while True:
            now = self.clock.now()
            try:
                await self.look(SESSION, now - DIFFER - (0 if started else SHORT * 1000))
                await self.look(TOKEN, now - DIFFER if started else 0)
                started = True
            except PortError:
                started = False
            for digest in [digest for digest, expires in self._tokens.items() if expires < now // 1000]:
                del self._tokens[digest]
            await asyncio.sleep(self.every)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
