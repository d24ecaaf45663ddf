"""Notifications: what people should be informed of, and how a notification channel is protected from floods.

The first event of a topic is sent at once. Later events within a window are gathered, and sent as one digest when the window ends. Topics that are due
together share one notification, and a notification channel gets a limited number of notifications in a window, whatever happens. One notification at a time is being sent: while a channel
cannot be reached, everything is gathered, and sent in few notifications when it is back.

A notification is stored before it is sent, and removed after the channel has accepted it. After a crash in between it is sent again, with the same name: a channel receives
everything at least once, and can recognise a repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

OVERLAP = 30_000
"""Milliseconds by which each search goes back: clocks differ and searches lag."""
FIRST_LOOK = 86_400_000
"""How far the first search for a new notification channel goes back."""
MAX_TOPICS = 100
"""The most topics that are gathered separately; the rest are grouped by kind alone."""
MAX_LINES = 5
"""The most events of a topic that are sent in full; the rest are counted."""
MAX_SEEN = 1000
"""The most events that are remembered as sent; in a larger flood some may be counted twice."""
MAX_WORDS = 300
SENDING = 60_000
"""Milliseconds for which a notification that is being sent is reserved for its sender."""
LONGEST_WAIT = 3_600_000
GIVE_UP_AFTER = 80
"""Tries; with waits that grow to an hour, this takes about three days."""
OTHERS = "others"


class NotificationKind(StrEnum):
    """What has happened."""

    WAITS = "waits"
    """An incident waits for a person."""
    ALERT = "alert"
    AUDIT = "audit"
    """The end of the audit log, every hour: whoever keeps it elsewhere can prove later that nothing was changed."""


FOR_PEOPLE = (NotificationKind.WAITS, NotificationKind.ALERT)


class Topic(NamedTuple):
    """The subject under which events are sent together."""

    tenant: str
    kind: NotificationKind
    cause: str
    """The cause of an incident; the name of an alert."""
    owner: str


class NotificationEvent(NamedTuple):
    """An event of which a person should be notified."""

    id: str
    topic: Topic
    at: int
    words: str
    to: tuple[str, ...] = ()
    """The persons that it names."""


@dataclass(frozen=True, slots=True)
class ChannelFilter:
    """Which notifications a channel receives, and how many."""

    name: str
    tenants: frozenset[str]
    owners: frozenset[str] = frozenset()
    """Empty: everyone's."""
    kinds: frozenset[NotificationKind] = frozenset(FOR_PEOPLE)
    window: int = 900_000
    """Milliseconds."""
    most: int = 10
    """Notifications in a window."""

    def wants(self, notification_event: NotificationEvent) -> bool:
        topic = notification_event.topic
        if topic.tenant not in self.tenants or topic.kind not in self.kinds:
            return False
        return (
            not self.owners
            or bool(self.owners & {topic.owner, *notification_event.to})
            or self.name in notification_event.to
        )


@dataclass(frozen=True, slots=True)
class PendingEvents:
    """The events of a topic that are not yet sent."""

    topic: Topic
    count: int
    since: int
    lines: tuple[str, ...]

    def joined(self, notification_event: NotificationEvent) -> PendingEvents:
        lines = self.lines if len(self.lines) >= MAX_LINES else (*self.lines, notification_event.words[:MAX_WORDS])
        return replace(self, count=self.count + 1, since=min(self.since, notification_event.at), lines=lines)


@dataclass(frozen=True, slots=True)
class Notification:
    """What is sent in one message, repeated until the channel accepts it."""

    n: int
    topics: tuple[PendingEvents, ...]
    due: int
    tries: int = 0

    @property
    def count(self) -> int:
        return sum(topic.count for topic in self.topics)


@dataclass(frozen=True, slots=True)
class Outbox:
    """What was sent to a notification channel and what is still to be sent."""

    mark: int
    """Events up to this time were read."""
    seen: Mapping[str, int] = field(default_factory=dict)
    """The events within the overlap, by their short names."""
    gathered: Mapping[Topic, PendingEvents] = field(default_factory=dict)
    quiet: Mapping[Topic, int] = field(default_factory=dict)
    """Until when further events of a topic are gathered."""
    sent: tuple[int, ...] = ()
    """When the notifications of the last window were begun."""
    n: int = 0
    notification: Notification | None = None


def gather(
    outbox: Outbox, notification_events: Iterable[NotificationEvent], addressee: ChannelFilter, now: int
) -> Outbox:
    """Add the events that the channel accepts and has not received."""
    seen, gathered, mark = dict(outbox.seen), dict(outbox.gathered), outbox.mark
    for notification_event in notification_events:
        name = _short(notification_event.id)
        if name in seen or notification_event.at <= outbox.mark - OVERLAP or not addressee.wants(notification_event):
            continue
        seen[name] = notification_event.at
        mark = max(mark, min(notification_event.at, now))  # a clock that is ahead must not hide events of others
        topic = notification_event.topic
        if topic not in gathered and len(gathered) >= MAX_TOPICS:
            topic = Topic(topic.tenant, topic.kind, OTHERS, "")
        gathered[topic] = gathered.get(topic, PendingEvents(topic, 0, notification_event.at, ())).joined(
            notification_event
        )
    if len(seen) == len(outbox.seen):
        return outbox
    kept = sorted((at, name) for name, at in seen.items() if at > mark - OVERLAP)[-MAX_SEEN:]
    return replace(outbox, mark=mark, seen={name: at for at, name in kept}, gathered=gathered)


def take_up(outbox: Outbox, addressee: ChannelFilter, now: int) -> tuple[Outbox, Notification | None]:
    """The notification to be sent now, if any; it is reserved for the caller for as long as sending may take."""
    if outbox.notification is not None:
        if outbox.notification.due > now:
            return outbox, None
        notification = replace(outbox.notification, due=now + SENDING, tries=outbox.notification.tries + 1)
        return replace(outbox, notification=notification), notification
    quiet = {topic: until for topic, until in outbox.quiet.items() if until > now}
    sent = tuple(at for at in outbox.sent if at > now - addressee.window)
    due = [events for topic, events in outbox.gathered.items() if topic not in quiet]
    if not due or len(sent) >= addressee.most:
        return outbox, None
    topics = tuple(sorted(due, key=lambda events: (-events.count, events.topic)))
    notification = Notification(outbox.n + 1, topics, due=now + SENDING, tries=1)
    reported = {events.topic for events in topics}
    return (
        Outbox(
            mark=outbox.mark,
            seen=outbox.seen,
            gathered={topic: events for topic, events in outbox.gathered.items() if topic not in reported},
            quiet=quiet | dict.fromkeys(sorted(reported), now + addressee.window),
            sent=(*sent, now),
            n=notification.n,
            notification=notification,
        ),
        notification,
    )


def was_sent(outbox: Outbox, notification: Notification) -> Outbox:
    """The outbox after the channel accepted a notification, or the sender gave up."""
    return replace(outbox, notification=None) if _under_way(outbox, notification) else outbox


def was_not_sent(outbox: Outbox, notification: Notification, now: int) -> Outbox:
    """The outbox after a notification was not accepted, as far as is known; it is sent again."""
    if not _under_way(outbox, notification):
        return outbox
    return replace(outbox, notification=replace(notification, due=now + wait_after(notification.tries)))


def given_up(notification: Notification) -> bool:
    return notification.tries >= GIVE_UP_AFTER


def wait_after(tries: int) -> int:
    """Milliseconds before the next try: one second, doubled each time, up to an hour."""
    return int(min(1000 << min(tries - 1, 20), LONGEST_WAIT))


def _under_way(outbox: Outbox, notification: Notification) -> bool:
    """Whether this is the try that was begun last."""
    return outbox.notification is not None and (outbox.notification.n, outbox.notification.tries) == (
        notification.n,
        notification.tries,
    )


def _short(name: str) -> str:
    return blake2b(name.encode(), digest_size=8).hexdigest()
