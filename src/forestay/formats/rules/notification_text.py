"""Letters: how they are kept in the store, and how people and programs read them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from forestay.domain.exceptions.incidents.notifications import (
    Notification,
    NotificationKind,
    Outbox,
    PendingEvents,
    Topic,
)
from forestay.formats.jobs.job_public import time_text

MAX_SUBJECT = 150
SHOWN = 25
"""Topics that are told in full."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def outbox_plain(tray: Outbox) -> dict[str, object]:
    letter = tray.letter
    return {
        "mark": tray.mark,
        "seen": dict(tray.seen),
        "gathered": [_gathered_plain(one) for one in tray.gathered.values()],
        "quiet": [[*topic, until] for topic, until in tray.quiet.items()],
        "sent": list(tray.sent),
        "n": tray.n,
        "letter": letter
        and {
            "n": letter.n,
            "topics": [_gathered_plain(one) for one in letter.topics],
            "due": letter.due,
            "tries": letter.tries,
        },
    }


def outbox_of(data: Mapping[str, Any]) -> Outbox:
    letter = data["letter"]
    return Outbox(
        mark=data["mark"],
        seen=data["seen"],
        gathered={one.topic: one for one in map(_gathered_of, data["gathered"])},
        quiet={_topic_of(topic): until for *topic, until in data["quiet"]},
        sent=tuple(data["sent"]),
        n=data["n"],
        letter=letter
        and Notification(letter["n"], tuple(map(_gathered_of, letter["topics"])), letter["due"], letter["tries"]),
    )


def _gathered_plain(one: PendingEvents) -> dict[str, object]:
    return {"topic": list(one.topic), "count": one.count, "since": one.since, "lines": list(one.lines)}


def _gathered_of(data: Mapping[str, Any]) -> PendingEvents:
    return PendingEvents(_topic_of(data["topic"]), data["count"], data["since"], tuple(data["lines"]))


def _topic_of(data: Sequence[str]) -> Topic:
    tenant, kind, cause, owner = data
    return Topic(tenant, NotificationKind(kind), cause, owner)


def notification_subject(letter: Notification) -> str:
    """One line, of text alone."""
    first = f"[forestay] {_headline(letter.topics[0])}"
    more = len(letter.topics) - 1
    end = f"; and {more} more" if more else ""
    return _line(first)[: MAX_SUBJECT - len(end)] + end


def notification_text(letter: Notification, url: str) -> str:
    lines: list[str] = []
    for one in letter.topics[:SHOWN]:
        lines.append(f"{_headline(one)}, since {time_text(one.since)} (tenant {one.topic.tenant})")
        lines += [f"  - {_line(words)}" for words in one.lines]
        if (rest := one.count - len(one.lines)) > 0:
            lines.append(f"  and {rest} more")
        lines.append("")
    if len(letter.topics) > SHOWN:
        lines += [f"And {len(letter.topics) - SHOWN} more topics.", ""]
    lines.append(f"Details and next steps: forestay inbox, forestay alerts, or {url}")
    return "\n".join(lines) + "\n"


def notification_public(letter: Notification, delivery: str, url: str) -> dict[str, object]:
    """The letter for programs; `text` is what chats with incoming webhooks show."""
    return {
        "delivery": delivery,
        "subject": notification_subject(letter),
        "text": notification_text(letter, url),
        "count": letter.count,
        "topics": [
            {**one.topic._asdict(), "count": one.count, "since": time_text(one.since), "notices": list(one.lines)}
            for one in letter.topics
        ],
    }


def _headline(one: PendingEvents) -> str:
    topic, many = one.topic, one.count
    of = f" of {_line(topic.owner)}" if topic.owner else ""
    if topic.kind is NotificationKind.ALERT:
        return f"{topic.cause}{of}" if many == 1 else f"{many} alerts {topic.cause}{of}"
    if topic.kind is NotificationKind.AUDIT:
        return f"end of the audit log of {_line(topic.tenant)}"
    what = "1 failure" if many == 1 else f"{many} failures"
    return f"Attention needed: {what}, {topic.cause}{of}"


def _line(text: str) -> str:
    """On one line and without anything that a mail or a terminal could take for more than text."""
    return _CONTROL.sub(" ", text)
