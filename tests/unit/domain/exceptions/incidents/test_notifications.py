"""Notifications: the first at once, the rest in digests, never more notifications than asked for, and nothing left out."""

from __future__ import annotations

from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.incidents.notifications import (
    GIVE_UP_AFTER,
    MAX_LINES,
    MAX_TOPICS,
    OVERLAP,
    SENDING,
    ChannelFilter,
    Notification,
    NotificationEvent,
    NotificationKind,
    Outbox,
    Topic,
    gather,
    given_up,
    take_up,
    wait_after,
    was_not_sent,
    was_sent,
)
from forestay.formats.rules.notification_text import (
    notification_public,
    notification_subject,
    notification_text,
    outbox_of,
    outbox_plain,
)

NOW = 1_700_000_000_000
MINUTE = 60_000
OPS = ChannelFilter("ops", frozenset({"lab"}), window=15 * MINUTE, most=3)


def notification_event(
    name: str, at: int = NOW, *, cause: str = "memory", owner: str = "ada", tenant: str = "lab"
) -> NotificationEvent:
    return NotificationEvent(name, Topic(tenant, NotificationKind.WAITS, cause, owner), at, f"job {name} waits")


def step(outbox: Outbox, now: int, *notification_events: NotificationEvent) -> tuple[Outbox, Notification | None]:
    """One look whose notification, if any, is taken at once."""
    outbox, notification = take_up(gather(outbox, notification_events, OPS, now), OPS, now)
    return (was_sent(outbox, notification), notification) if notification else (outbox, None)


def test_the_first_is_told_at_once_and_the_rest_when_the_window_ends() -> None:
    outbox, notification = step(Outbox(NOW - MINUTE), NOW, notification_event("1"))
    assert notification is not None
    assert (notification.n, notification.count) == (1, 1)
    for number in range(2, 40):
        outbox, notification = step(outbox, NOW + number * 1000, notification_event(str(number), NOW + number * 1000))
        assert notification is None
    assert step(outbox, NOW + 15 * MINUTE - 1)[1] is None
    outbox, notification = step(outbox, NOW + 15 * MINUTE)
    assert notification is not None
    assert (notification.n, notification.count, len(notification.topics[0].lines)) == (2, 38, MAX_LINES)
    assert "and 33 more" in notification_text(notification, "http://h")
    outbox, notification = step(outbox, NOW + 30 * MINUTE)
    assert notification is None, "nothing new"
    assert step(outbox, NOW + 31 * MINUTE, notification_event("x", NOW + 31 * MINUTE))[1] is not None, (
        "told at once again"
    )


def test_what_was_seen_is_not_told_again_however_often_it_is_read() -> None:
    outbox, notification = step(Outbox(NOW - MINUTE), NOW, notification_event("1"), notification_event("1"))
    assert notification is not None
    assert notification.count == 1
    for later in (1000, 16 * MINUTE, 40 * MINUTE):
        outbox, notification = step(outbox, NOW + later, notification_event("1"))
        assert notification is None
    late = notification_event("late", NOW - OVERLAP + 1)
    assert step(outbox, NOW + 40 * MINUTE, late)[1] is not None, "a search showed it late"


def test_a_clock_that_is_ahead_hides_nothing() -> None:
    outbox, _ = step(Outbox(NOW - MINUTE), NOW, notification_event("ahead", NOW + 90 * MINUTE))
    assert outbox.mark <= NOW
    _, notification = step(outbox, NOW + 20 * MINUTE, notification_event("2", NOW + 1000))
    assert notification is not None


def test_notifications_of_a_window_have_a_bound_and_other_topics_are_gathered() -> None:
    outbox, notifications = Outbox(NOW - MINUTE), 0
    for second in range(600):
        at = NOW + second * 1000
        outbox, notification = step(outbox, at, notification_event(str(second), at, owner=f"owner-{second}"))
        notifications += notification is not None
    assert notifications == OPS.most
    assert len(outbox.gathered) <= MAX_TOPICS + 1
    _, notification = step(outbox, NOW + 15 * MINUTE)
    assert notification is not None
    assert notification.count == 600 - OPS.most
    assert "more topics" in notification_text(notification, "http://h")


def test_only_one_of_several_reconcilers_has_a_notification_until_it_is_surely_not_being_sent() -> None:
    outbox, notification = take_up(gather(Outbox(NOW - MINUTE), [notification_event("1")], OPS, NOW), OPS, NOW)
    assert notification is not None
    assert take_up(outbox, OPS, NOW + SENDING - 1) == (outbox, None)
    outbox, again = take_up(outbox, OPS, NOW + SENDING)
    assert again is not None
    assert (again.n, again.topics, again.tries) == (notification.n, notification.topics, 2), "the same notification"
    assert was_sent(outbox, notification) == outbox, "whoever was slow does not cross out what another sends"
    assert was_sent(outbox, again).notification is None


def test_while_a_notification_channel_is_away_all_is_gathered_and_told_in_few_notifications() -> None:
    outbox, now, tried = Outbox(NOW - MINUTE), NOW, 0
    for number in range(500):
        now = NOW + number * 10_000
        outbox, notification = take_up(gather(outbox, [notification_event(str(number), now)], OPS, now), OPS, now)
        if notification is not None:
            tried += 1
            outbox = was_not_sent(outbox, notification, now)
    assert tried < 15, "it waits longer each time"
    assert [wait_after(number) for number in (1, 2, 3, 50)] == [1000, 2000, 4000, 3_600_000]
    count = 0
    for later in range(61):
        outbox, notification = step(outbox, now + later * MINUTE)
        count += notification.count if notification else 0
    assert count == 500
    assert outbox.n == 2
    assert given_up(Notification(1, (), NOW, GIVE_UP_AFTER))


def test_who_hears_of_what() -> None:
    topic = Topic("lab", NotificationKind.ALERT, "playbook", "ada")
    named = NotificationEvent("n", topic, NOW, "words", to=("lab-chat", "grace"))
    lab = ChannelFilter("lab-chat", frozenset({"lab"}), owners=frozenset({"edsger"}))
    assert lab.wants(named), "it is named"
    assert replace(lab, name="x", owners=frozenset({"grace"})).wants(named), "its person is named"
    assert replace(lab, name="x", owners=frozenset({"ada"})).wants(named), "its person's job"
    assert not replace(lab, name="x").wants(named)
    assert replace(lab, name="x", owners=frozenset()).wants(named)
    assert not replace(lab, tenants=frozenset({"other"})).wants(named), "never of another tenant, whatever is named"
    assert not replace(lab, kinds=frozenset({NotificationKind.WAITS})).wants(named)


def test_what_people_wrote_cannot_make_a_mail_of_it() -> None:
    owner = "ada\r\nBcc: all@example.org\r\n\r\n\x1b[2J" + "x" * 1000
    _, notification = step(
        Outbox(NOW - MINUTE), NOW, notification_event("1", owner=owner), notification_event("2", cause="disk")
    )
    assert notification is not None
    assert not set("\r\n\x1b") & set(notification_subject(notification))
    assert len(notification_subject(notification)) <= 150
    assert "\x1b" not in notification_text(notification, "http://h")
    assert notification_public(notification, "ops.1", "http://h")["count"] == 2


NOTICES = st.builds(
    notification_event,
    st.integers(0, 60).map(str),
    st.integers(NOW, NOW + 3600_000),
    cause=st.sampled_from(["memory", "node", "disk"]),
    owner=st.sampled_from(["ada", "grace"]),
    tenant=st.sampled_from(["lab", "other"]),
)


@given(st.lists(st.tuples(st.lists(NOTICES, max_size=5), st.booleans(), st.integers(0, 30 * MINUTE)), max_size=30))
def test_whatever_happens_each_is_told_once_and_the_outbox_survives_its_writing(
    looks: list[tuple[list[NotificationEvent], bool, int]],
) -> None:
    outbox, now, count, wanted = Outbox(NOW - MINUTE), NOW, 0, dict[str, int]()
    for notification_events, taken, wait in looks:
        now += wait
        # As sources tell: what is older than the overlap was read before.
        notification_events = [
            notification_event._replace(at=min(notification_event.at, now))
            for notification_event in notification_events
            if min(notification_event.at, now) > outbox.mark - OVERLAP
        ]
        for notification_event in notification_events:
            if OPS.wants(notification_event) and notification_event.id not in wanted:
                wanted[notification_event.id] = notification_event.at
        known = [
            notification_event._replace(at=wanted.get(notification_event.id, notification_event.at))
            for notification_event in notification_events
        ]
        outbox, notification = take_up(gather(outbox, known, OPS, now), OPS, now)
        if notification is not None:
            outbox = was_sent(outbox, notification) if taken else was_not_sent(outbox, notification, now)
            count += notification.count if taken else 0
        assert outbox_of(orjson.loads(orjson.dumps(outbox_plain(outbox)))) == outbox
    for _ in range(60):
        now += 2 * 3600_000
        outbox, notification = step(outbox, now)
        count += notification.count if notification else 0
    assert count == len(wanted)
