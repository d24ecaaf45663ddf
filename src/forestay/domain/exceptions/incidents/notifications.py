"""Notices: what a person should hear of, and how a receiver hears of much without being flooded.

The first notice of a topic is told at once. What comes after it within a window is gathered, and told as one digest when the window ends. Topics that are due
together make one letter, and a receiver gets at most so many letters in a window, whatever happens. One letter at a time is under way: while a receiver
cannot be reached, everything is gathered, and told in few letters when it is back.

A letter is written down before it is sent, and crossed out after it was taken. Who dies in between has it sent again, with the same name: a receiver hears of
everything at least once, and can tell a repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

OVERLAP = 30_000
"""Milliseconds that each look goes back: clocks differ and searches lag."""
FIRST_LOOK = 86_400_000
"""How far the first look of a new receiver goes back."""
MAX_TOPICS = 100
"""Topics that are gathered apart; the rest are told by their kind alone."""
MAX_LINES = 5
"""Notices of a topic that are told in full; the rest are counted."""
MAX_SEEN = 1000
"""Notices that are remembered as told; in a greater flood some may be counted twice."""
MAX_WORDS = 300
SENDING = 60_000
"""Milliseconds for which nobody else sends a letter that was taken up."""
LONGEST_WAIT = 3_600_000
GIVE_UP_AFTER = 80
"""Tries; with waits that grow to an hour, about three days."""
OTHERS = "others"


class NotificationKind(StrEnum):
    """What has happened."""

    WAITS = "waits"
    """An incident waits for a person."""
    ALERT = "alert"
    AUDIT = "audit"
    """Where the audit log ends, every hour: for who keeps that elsewhere, and can show later that nothing was changed."""


FOR_PEOPLE = (NotificationKind.WAITS, NotificationKind.ALERT)


class Topic(NamedTuple):
    """What is told together."""

    tenant: str
    kind: NotificationKind
    cause: str
    """The cause of an incident; the name of an alert."""
    owner: str


class NotificationEvent(NamedTuple):
    """One thing that a person should hear of."""

    id: str
    topic: Topic
    at: int
    words: str
    to: tuple[str, ...] = ()
    """Whom it names."""


@dataclass(frozen=True, slots=True)
class ChannelFilter:
    """Which notices a receiver wants, and how many letters."""

    name: str
    tenants: frozenset[str]
    owners: frozenset[str] = frozenset()
    """Empty: everyone's."""
    kinds: frozenset[NotificationKind] = frozenset(FOR_PEOPLE)
    window: int = 900_000
    """Milliseconds."""
    most: int = 10
    """Letters in a window."""

    def wants(self, notice: NotificationEvent) -> bool:
        topic = notice.topic
        if topic.tenant not in self.tenants or topic.kind not in self.kinds:
            return False
        return not self.owners or bool(self.owners & {topic.owner, *notice.to}) or self.name in notice.to


@dataclass(frozen=True, slots=True)
class PendingEvents:
    """What is yet to be told of one topic."""

    topic: Topic
    count: int
    since: int
    lines: tuple[str, ...]

    def joined(self, notice: NotificationEvent) -> PendingEvents:
        lines = self.lines if len(self.lines) >= MAX_LINES else (*self.lines, notice.words[:MAX_WORDS])
        return replace(self, count=self.count + 1, since=min(self.since, notice.at), lines=lines)


@dataclass(frozen=True, slots=True)
class Notification:
    """What is told at once, until it is taken."""

    n: int
    topics: tuple[PendingEvents, ...]
    due: int
    tries: int = 0

    @property
    def count(self) -> int:
        return sum(one.count for one in self.topics)


@dataclass(frozen=True, slots=True)
class Outbox:
    """What one receiver has been told and is to be told."""

    mark: int
    """Notices are taken in up to here."""
    seen: Mapping[str, int] = field(default_factory=dict)
    """Those of the overlap, by their short names."""
    gathered: Mapping[Topic, PendingEvents] = field(default_factory=dict)
    quiet: Mapping[Topic, int] = field(default_factory=dict)
    """Until when further notices of a topic are gathered."""
    sent: tuple[int, ...] = ()
    """When letters were begun, within a window."""
    n: int = 0
    letter: Notification | None = None


def gather(tray: Outbox, notices: Iterable[NotificationEvent], addressee: ChannelFilter, now: int) -> Outbox:
    """Take in what the receiver wants and has not heard of."""
    seen, gathered, mark = dict(tray.seen), dict(tray.gathered), tray.mark
    for one in notices:
        name = _short(one.id)
        if name in seen or one.at <= tray.mark - OVERLAP or not addressee.wants(one):
            continue
        seen[name] = one.at
        mark = max(mark, min(one.at, now))  # a clock that is ahead must not hide what others tell
        topic = one.topic
        if topic not in gathered and len(gathered) >= MAX_TOPICS:
            topic = Topic(topic.tenant, topic.kind, OTHERS, "")
        gathered[topic] = gathered.get(topic, PendingEvents(topic, 0, one.at, ())).joined(one)
    if len(seen) == len(tray.seen):
        return tray
    kept = sorted((at, name) for name, at in seen.items() if at > mark - OVERLAP)[-MAX_SEEN:]
    return replace(tray, mark=mark, seen={name: at for at, name in kept}, gathered=gathered)


def take_up(tray: Outbox, addressee: ChannelFilter, now: int) -> tuple[Outbox, Notification | None]:
    """The letter to be sent now, if any; it is not given to anyone else for as long as sending may take."""
    if tray.letter is not None:
        if tray.letter.due > now:
            return tray, None
        letter = replace(tray.letter, due=now + SENDING, tries=tray.letter.tries + 1)
        return replace(tray, letter=letter), letter
    quiet = {topic: until for topic, until in tray.quiet.items() if until > now}
    sent = tuple(at for at in tray.sent if at > now - addressee.window)
    due = [one for topic, one in tray.gathered.items() if topic not in quiet]
    if not due or len(sent) >= addressee.most:
        return tray, None
    topics = tuple(sorted(due, key=lambda one: (-one.count, one.topic)))
    letter = Notification(tray.n + 1, topics, due=now + SENDING, tries=1)
    told = {one.topic for one in topics}
    return (
        Outbox(
            mark=tray.mark,
            seen=tray.seen,
            gathered={topic: one for topic, one in tray.gathered.items() if topic not in told},
            quiet=quiet | dict.fromkeys(sorted(told), now + addressee.window),
            sent=(*sent, now),
            n=letter.n,
            letter=letter,
        ),
        letter,
    )


def was_sent(tray: Outbox, letter: Notification) -> Outbox:
    """It was taken, or given up."""
    return replace(tray, letter=None) if _under_way(tray, letter) else tray


def was_not_sent(tray: Outbox, letter: Notification, now: int) -> Outbox:
    """It was not taken, as far as is known; it is sent again."""
    if not _under_way(tray, letter):
        return tray
    return replace(tray, letter=replace(letter, due=now + wait_after(letter.tries)))


def given_up(letter: Notification) -> bool:
    return letter.tries >= GIVE_UP_AFTER


def wait_after(tries: int) -> int:
    """Milliseconds before the next try: one second, doubled each time, at most an hour."""
    return int(min(1000 << min(tries - 1, 20), LONGEST_WAIT))


def _under_way(tray: Outbox, letter: Notification) -> bool:
    """Whether it is this very try that was taken up last."""
    return tray.letter is not None and (tray.letter.n, tray.letter.tries) == (letter.n, letter.tries)


def _short(name: str) -> str:
    return blake2b(name.encode(), digest_size=8).hexdigest()
