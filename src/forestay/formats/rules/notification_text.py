"""Notifications: their stored form, and their texts for people and programs."""

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
"""The most topics that are shown in full."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def outbox_plain(outbox: Outbox) -> dict[str, object]:
    notification = outbox.notification
    return {
        "mark": outbox.mark,
        "seen": dict(outbox.seen),
        "gathered": [_gathered_plain(events) for events in outbox.gathered.values()],
        "quiet": [[*topic, until] for topic, until in outbox.quiet.items()],
        "sent": list(outbox.sent),
        "n": outbox.n,
        "notification": notification
        and {
            "n": notification.n,
            "topics": [_gathered_plain(topic) for topic in notification.topics],
            "due": notification.due,
            "tries": notification.tries,
        },
    }


def outbox_of(data: Mapping[str, Any]) -> Outbox:
    notification = data["notification"]
    return Outbox(
        mark=data["mark"],
        seen=data["seen"],
        gathered={events.topic: events for events in map(_gathered_of, data["gathered"])},
        quiet={_topic_of(topic): until for *topic, until in data["quiet"]},
        sent=tuple(data["sent"]),
        n=data["n"],
        notification=notification
        and Notification(
            notification["n"],
            tuple(map(_gathered_of, notification["topics"])),
            notification["due"],
            notification["tries"],
        ),
    )


def _gathered_plain(events: PendingEvents) -> dict[str, object]:
    return {"topic": list(events.topic), "count": events.count, "since": events.since, "lines": list(events.lines)}


def _gathered_of(data: Mapping[str, Any]) -> PendingEvents:
    return PendingEvents(_topic_of(data["topic"]), data["count"], data["since"], tuple(data["lines"]))


def _topic_of(data: Sequence[str]) -> Topic:
    tenant, kind, cause, owner = data
    return Topic(tenant, NotificationKind(kind), cause, owner)


def notification_subject(notification: Notification) -> str:
    """The subject: one line of plain text."""
    first = f"[forestay] {_headline(notification.topics[0])}"
    more = len(notification.topics) - 1
    end = f"; and {more} more" if more else ""
    return _line(first)[: MAX_SUBJECT - len(end)] + end


def notification_text(notification: Notification, url: str) -> str:
    lines: list[str] = []
    for events in notification.topics[:SHOWN]:
        lines.append(f"{_headline(events)}, since {time_text(events.since)} (tenant {events.topic.tenant})")
        lines += [f"  - {_line(words)}" for words in events.lines]
        if (rest := events.count - len(events.lines)) > 0:
            lines.append(f"  and {rest} more")
        lines.append("")
    if len(notification.topics) > SHOWN:
        lines += [f"And {len(notification.topics) - SHOWN} more topics.", ""]
    lines.append(f"Details and next steps: forestay inbox, forestay alerts, or {url}")
    return "\n".join(lines) + "\n"


def notification_public(notification: Notification, delivery: str, url: str) -> dict[str, object]:
    """The notification for programs; `text` is shown by chats with incoming webhooks."""
    return {
        "delivery": delivery,
        "subject": notification_subject(notification),
        "text": notification_text(notification, url),
        "count": notification.count,
        "topics": [
            {
                **events.topic._asdict(),
                "count": events.count,
                "since": time_text(events.since),
                "notifications": list(events.lines),
            }
            for events in notification.topics
        ],
    }


def _headline(events: PendingEvents) -> str:
    topic, many = events.topic, events.count
    of = f" of {_line(topic.owner)}" if topic.owner else ""
    if topic.kind is NotificationKind.ALERT:
        return f"{topic.cause}{of}" if many == 1 else f"{many} alerts {topic.cause}{of}"
    if topic.kind is NotificationKind.AUDIT:
        return f"end of the audit log of {_line(topic.tenant)}"
    what = "1 failure" if many == 1 else f"{many} failures"
    return f"Attention needed: {what}, {topic.cause}{of}"


def _line(text: str) -> str:
    """A text on one line, without anything that a mail program or a terminal could interpret."""
    return _CONTROL.sub(" ", text)
