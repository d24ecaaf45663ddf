"""Sends alerts, and incidents that wait for a person, to notification channels: the first at once, the rest in digests.

Any number may run. The sent and pending notifications of a channel are one version-checked document: only one of several processes sends a notification. It is sent at
least once; if a reconciler dies between sending and recording that, it is sent again, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.exceptions.incidents.incident import HELD_FOR_A_PERSON, IncidentState, IncidentStatus
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
from forestay.services.exceptions.inbox.error_triages import ErrorTriages
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.shared.document_update import update_document
from forestay.services.shared.record_pages import record_pages

KIND = "notification_events"
PAGE = 1000
_HELD = frozenset({IncidentState.HELD})


class ChannelSubscription(NamedTuple):
    """A recipient, and what it receives."""

    addressee: ChannelFilter
    notification_channel: NotificationChannel


@dataclass(slots=True)
class Notifier:
    """The service."""

    store: JobStore
    incidents: IncidentStore
    documents: DocumentStore
    clock: Clock
    notification_channels: Sequence[ChannelSubscription]
    admin_tenant: str
    """The tenant whose notification channels get what concerns the whole domain."""
    url: str
    """The base URL of the pages to which notifications link."""
    audit: AuditLog | None = None
    """The audit log, whose end notification channels may want to keep; None: it is not sent."""
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
        """Collect new events, and send what is due."""
        names = {
            document_of(notification_channel.addressee): notification_channel
            for notification_channel in self.notification_channels
        }
        stored = await self.documents.get(list(names))
        now = self.clock.now()
        outboxes = {name: _outbox(stored.get(name), now) for name in names}
        notification_events = await self._notices(min(outbox.mark for outbox in outboxes.values()) - OVERLAP)
        sending = [
            self._serve(names[name], outbox, stored.get(name), notification_events) for name, outbox in outboxes.items()
        ]
        await asyncio.gather(*sending)

    async def _serve(
        self,
        subscription: ChannelSubscription,
        before: Outbox,
        stored: StoredDocument | None,
        notification_events: Sequence[NotificationEvent],
    ) -> None:
        now = self.clock.now()
        outbox, notification = take_up(
            gather(before, notification_events, subscription.addressee, now), subscription.addressee, now
        )
        if outbox == before:
            return
        if (
            not await self._put(subscription.addressee, outbox, stored.version if stored else None)
            or notification is None
        ):
            return  # another reconciler was faster; the rest is seen at the next poll
        problem = await self._send(subscription, notification)
        hopeless = problem is not None and (isinstance(problem, Permanent) or given_up(notification))
        self.dropped += hopeless

        def settle(found_stored: StoredDocument | None) -> tuple[Document | None, None]:
            status = _outbox(found_stored, now)
            over = problem is None or hopeless
            after = was_sent(status, notification) if over else was_not_sent(status, notification, self.clock.now())
            return (None if after == status else _document(subscription.addressee, after)), None

        unsure = "a notification was sent, and may be sent again"
        await update_document(self.documents, document_of(subscription.addressee), settle, unsure=unsure)

    async def _put(self, addressee: ChannelFilter, outbox: Outbox, expected: Version | None) -> bool:
        (result,) = await self.documents.put([(_document(addressee, outbox), expected)])
        return isinstance(result, Written)

    async def _send(self, subscription: ChannelSubscription, notification: Notification) -> PortError | None:
        try:
            await subscription.notification_channel.tell(
                message_of(notification, f"{subscription.addressee.name}.{notification.n}", self.url)
            )
        except PortError as error:
            self.failed += 1
            self.troubled(
                f"notification channel {subscription.addressee.name}, notification {notification.n}, try {notification.tries}: {error}"
            )
            return error
        self.sent += 1
        return None

    # -- events to report --------------------------------------------------------------------------------------

    async def _notices(self, since: int) -> Sequence[NotificationEvent]:
        """All events of that time and later, including those that were sent already."""
        return [*await self._waiting(since), *await self._alerts(since), *await self._ends_of_audit()]

    async def _ends_of_audit(self) -> list[NotificationEvent]:
        """The ends of all tenants' audit logs, under one name for each hour: the first process in an hour reports them."""
        if self.audit is None:
            return []
        wanted = [
            notification_channel.addressee.tenants
            for notification_channel in self.notification_channels
            if NotificationKind.AUDIT in notification_channel.addressee.kinds
        ]
        hour = self.clock.now() // HOUR * HOUR
        notification_events = []
        for tenant in sorted(frozenset().union(*wanted)):
            head = await self.audit.head(tenant)
            anchor = f"{head.number}:{head.hash}"
            words = f"{anchor}, check it with `forestay audit verify --anchor {anchor}`"
            notification_events.append(
                NotificationEvent(f"audit:{tenant}:{hour}", Topic(tenant, NotificationKind.AUDIT, "", ""), hour, words)
            )
        return notification_events

    async def _waiting(self, since: int) -> list[NotificationEvent]:
        notification_events: list[NotificationEvent] = []
        # One tenant after the other: stores find held incidents by tenant, however many are closed.
        for tenant in sorted(
            frozenset().union(
                *(notification_channel.addressee.tenants for notification_channel in self.notification_channels)
            )
        ):
            query = IncidentQuery(tenant=tenant, states=_HELD, changed=since)
            cursor: str | None = None
            while True:
                page = await self.incidents.find(query, sort="changed", limit=MAX_FOUND, cursor=cursor)
                statuses = [stored.status for stored in page.statuses]
                quiet = await self._quiet(tenant, statuses)
                notification_events += [_of_incident(status) for status in statuses if status.fingerprint not in quiet]
                cursor = page.cursor
                if cursor is None:
                    break
        return notification_events

    async def _quiet(self, tenant: str, statuses: Sequence[IncidentStatus]) -> frozenset[str]:
        """The errors that are snoozed, or resolved and not seen since."""
        last_seen: dict[str, int] = {}
        for status in statuses:
            if status.fingerprint:
                last_seen[status.fingerprint] = max(status.at, last_seen.get(status.fingerprint, 0))
        return await ErrorTriages(self.documents, self.clock).quiet(tenant, last_seen) if last_seen else frozenset()

    async def _alerts(self, since: int) -> list[NotificationEvent]:
        records: dict[str, Record] = {}
        async for page in record_pages(self.store, kind="alert", since=since):
            records |= {record.id: record for record in page}
        jobs = (
            await self.store.get(sorted({record.job for record in records.values() if record.job})) if records else {}
        )
        owners = {name: stored.document.owner for name, stored in jobs.items()}
        return [self._of_alert(record, owners) for record in records.values()]

    def _of_alert(self, record: Record, owners: Mapping[str, str]) -> NotificationEvent:
        body = record.body
        to = body.get("to")
        topic = Topic(
            record.tenant or self.admin_tenant,
            NotificationKind.ALERT,
            str(body.get("alert", "")),
            owners.get(record.job, ""),
        )
        named = tuple(str(name) for name in to) if isinstance(to, list | tuple) else ()
        return NotificationEvent(record.id, topic, record.at, str(body.get("words", "")), named)


def _of_incident(status: IncidentStatus) -> NotificationEvent:
    # A storm is one topic, however many owners it has.
    owner = "" if status.group else status.owner
    topic = Topic(status.tenant, NotificationKind.WAITS, status.cause, owner)
    what = f"job {status.job[:8]}" if status.job else f"run {status.run} {status.instance}".strip()
    words = f"{what}: {status.kind.value}, {status.note or HELD_FOR_A_PERSON}"
    return NotificationEvent(f"{status.id}:{status.n}", topic, status.changed, words, (status.owner,))


def message_of(notification: Notification, delivery: str, url: str) -> NotificationMessage:
    """A notification as it is sent."""
    return NotificationMessage(
        delivery,
        notification_subject(notification),
        notification_text(notification, url),
        notification_public(notification, delivery, url),
    )


def document_of(addressee: ChannelFilter) -> str:
    return f"{KIND}:{addressee.name}"


def _document(addressee: ChannelFilter, outbox: Outbox) -> Document:
    return Document(document_of(addressee), "", KIND, outbox_plain(outbox))


def _outbox(stored: StoredDocument | None, now: int) -> Outbox:
    return Outbox(mark=now - FIRST_LOOK) if stored is None else outbox_of(stored.document.body)
