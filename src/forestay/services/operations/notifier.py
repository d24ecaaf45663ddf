"""Tells receivers of alerts, and of incidents that wait for a person: the first at once, the rest in digests.

Any number may run. What a receiver was told and is to be told is one document, written over what was read: only one of several takes a letter up. It is sent at
least once; a keeper that dies between sending and writing that down has it sent again, under the same name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.exceptions.incidents.incident import IncidentState, IncidentStatus
from forestay.domain.exceptions.incidents.notifications import (
    FIRST_LOOK,
    OVERLAP,
    ChannelFilter,
    Notification,
    NotificationEvent,
    NotificationKind,
    Outbox,
    Topic,
    gather,
    given_up,
    take_up,
    was_not_sent,
    was_sent,
)
from forestay.domain.exceptions.safeguards.rate_limit import HOUR
from forestay.formats.rules.notification_text import (
    notification_public,
    notification_subject,
    notification_text,
    outbox_of,
    outbox_plain,
)
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Permanent, PortError
from forestay.ports.exceptions.incident_store import MAX_FOUND, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore, Record, Version, Written
from forestay.ports.operations.notification_channel import NotificationChannel, NotificationMessage
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.shared.document_update import update_document

KIND = "notices"
PAGE = 1000
TRIES = 10
_HELD = frozenset({IncidentState.HELD})


class ChannelSubscription(NamedTuple):
    """Somebody who is told, and what."""

    addressee: ChannelFilter
    receiver: NotificationChannel


@dataclass(slots=True)
class Notifier:
    """The service."""

    store: JobStore
    incidents: IncidentStore
    documents: DocumentStore
    clock: Clock
    receivers: Sequence[ChannelSubscription]
    house: str
    """The tenant whose receivers hear of what concerns the whole domain."""
    url: str
    """Where people look."""
    audit: AuditLog | None = None
    """Whose end receivers may want to keep; None: nobody is told of it."""
    every: float = 2.0
    troubled: Callable[[str], None] = lambda _text: None
    sent: int = 0
    failed: int = 0
    dropped: int = 0

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except PortError as error:
                self.troubled(str(error))
            await asyncio.sleep(self.every)

    async def look(self) -> None:
        """Take in what is new, and send what is due."""
        names = {document_of(one.addressee): one for one in self.receivers}
        stored = await self.documents.get(list(names))
        now = self.clock.now()
        trays = {name: _tray(stored.get(name), now) for name in names}
        notices = await self._notices(min(tray.mark for tray in trays.values()) - OVERLAP)
        sending = [self._serve(names[name], tray, stored.get(name), notices) for name, tray in trays.items()]
        await asyncio.gather(*sending)

    async def _serve(
        self,
        told: ChannelSubscription,
        before: Outbox,
        stored: StoredDocument | None,
        notices: Sequence[NotificationEvent],
    ) -> None:
        now = self.clock.now()
        tray, letter = take_up(gather(before, notices, told.addressee, now), told.addressee, now)
        if tray == before:
            return
        if not await self._put(told.addressee, tray, stored.version if stored else None) or letter is None:
            return  # another keeper was quicker; what it left is seen at the next look
        problem = await self._send(told, letter)
        hopeless = problem is not None and (isinstance(problem, Permanent) or given_up(letter))
        self.dropped += hopeless

        def settle(found: StoredDocument | None) -> tuple[Document | None, None]:
            standing = _tray(found, now)
            over = problem is None or hopeless
            after = was_sent(standing, letter) if over else was_not_sent(standing, letter, self.clock.now())
            return (None if after == standing else _document(told.addressee, after)), None

        unsure = "a notification was sent, and may be sent again"
        await update_document(self.documents, document_of(told.addressee), settle, tries=TRIES, unsure=unsure)

    async def _put(self, addressee: ChannelFilter, tray: Outbox, expected: Version | None) -> bool:
        (result,) = await self.documents.put([(_document(addressee, tray), expected)])
        return isinstance(result, Written)

    async def _send(self, told: ChannelSubscription, letter: Notification) -> PortError | None:
        try:
            await told.receiver.tell(message_of(letter, f"{told.addressee.name}.{letter.n}", self.url))
        except PortError as error:
            self.failed += 1
            self.troubled(f"receiver {told.addressee.name}, letter {letter.n}, try {letter.tries}: {error}")
            return error
        self.sent += 1
        return None

    # -- what there is to tell ---------------------------------------------------------------------------------

    async def _notices(self, since: int) -> Sequence[NotificationEvent]:
        """Everything of that time and later; what was told already is among it."""
        return [*await self._waiting(since), *await self._alerts(since), *await self._ends_of_audit()]

    async def _ends_of_audit(self) -> list[NotificationEvent]:
        """Of every tenant, under one name for an hour: whoever looks first in it says where the log ends then."""
        if self.audit is None:
            return []
        wanted = [one.addressee.tenants for one in self.receivers if NotificationKind.AUDIT in one.addressee.kinds]
        hour = self.clock.now() // HOUR * HOUR
        found = []
        for tenant in sorted(frozenset().union(*wanted)):
            head = await self.audit.head(tenant)
            anchor = f"{head.number}:{head.hash}"
            words = f"{anchor}, check it with `forestay audit verify --anchor {anchor}`"
            found.append(
                NotificationEvent(f"audit:{tenant}:{hour}", Topic(tenant, NotificationKind.AUDIT, "", ""), hour, words)
            )
        return found

    async def _waiting(self, since: int) -> list[NotificationEvent]:
        found: list[NotificationEvent] = []
        # One tenant after the other: stores find what is held by its tenant, however much is closed.
        for tenant in sorted(frozenset().union(*(one.addressee.tenants for one in self.receivers))):
            query = IncidentQuery(tenant=tenant, states=_HELD, changed=since)
            cursor: str | None = None
            while True:
                page = await self.incidents.find(query, sort="changed", limit=MAX_FOUND, cursor=cursor)
                found += [_of_incident(one.standing) for one in page.found]
                cursor = page.cursor
                if cursor is None:
                    break
        return found

    async def _alerts(self, since: int) -> list[NotificationEvent]:
        found: dict[str, Record] = {}
        while True:
            page = await self.store.find_records(kind="alert", since=since, limit=PAGE)
            found |= {one.id: one for one in page}
            if len(page) < PAGE or page[-1].at <= since:
                break
            since = page[-1].at
        jobs = await self.store.get(sorted({one.job for one in found.values() if one.job})) if found else {}
        owners = {name: stored.document.owner for name, stored in jobs.items()}
        return [self._of_alert(one, owners) for one in found.values()]

    def _of_alert(self, record: Record, owners: Mapping[str, str]) -> NotificationEvent:
        body = record.body
        to = body.get("to")
        topic = Topic(
            record.tenant or self.house, NotificationKind.ALERT, str(body.get("alert", "")), owners.get(record.job, "")
        )
        named = tuple(str(one) for one in to) if isinstance(to, list | tuple) else ()
        return NotificationEvent(record.id, topic, record.at, str(body.get("words", "")), named)


def _of_incident(standing: IncidentStatus) -> NotificationEvent:
    # A storm is one topic, however many owners it has.
    owner = "" if standing.group else standing.owner
    topic = Topic(standing.tenant, NotificationKind.WAITS, standing.cause, owner)
    what = f"job {standing.job[:8]}" if standing.job else f"case {standing.case} {standing.item}".strip()
    words = f"{what}: {standing.kind.value}, {standing.note or 'held for a person'}"
    return NotificationEvent(f"{standing.id}:{standing.n}", topic, standing.changed, words, (standing.owner,))


def message_of(letter: Notification, delivery: str, url: str) -> NotificationMessage:
    """A letter as it is sent."""
    return NotificationMessage(
        delivery,
        notification_subject(letter),
        notification_text(letter, url),
        notification_public(letter, delivery, url),
    )


def document_of(addressee: ChannelFilter) -> str:
    return f"{KIND}:{addressee.name}"


def _document(addressee: ChannelFilter, tray: Outbox) -> Document:
    return Document(document_of(addressee), "", KIND, outbox_plain(tray))


def _tray(stored: StoredDocument | None, now: int) -> Outbox:
    return Outbox(mark=now - FIRST_LOOK) if stored is None else outbox_of(stored.document.body)
