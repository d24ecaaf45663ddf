"""Notices: the first at once, the rest in digests, never more letters than asked for, and nothing left out."""

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


def notice(
    name: str, at: int = NOW, *, cause: str = "memory", owner: str = "ada", tenant: str = "lab"
) -> NotificationEvent:
    return NotificationEvent(name, Topic(tenant, NotificationKind.WAITS, cause, owner), at, f"job {name} waits")


def step(tray: Outbox, now: int, *notices: NotificationEvent) -> tuple[Outbox, Notification | None]:
    """One look whose letter, if any, is taken at once."""
    tray, letter = take_up(gather(tray, notices, OPS, now), OPS, now)
    return (was_sent(tray, letter), letter) if letter else (tray, None)


def test_the_first_is_told_at_once_and_the_rest_when_the_window_ends() -> None:
    tray, letter = step(Outbox(NOW - MINUTE), NOW, notice("1"))
    assert letter is not None
    assert (letter.n, letter.count) == (1, 1)
    for number in range(2, 40):
        tray, letter = step(tray, NOW + number * 1000, notice(str(number), NOW + number * 1000))
        assert letter is None
    assert step(tray, NOW + 15 * MINUTE - 1)[1] is None
    tray, letter = step(tray, NOW + 15 * MINUTE)
    assert letter is not None
    assert (letter.n, letter.count, len(letter.topics[0].lines)) == (2, 38, MAX_LINES)
    assert "and 33 more" in notification_text(letter, "http://h")
    tray, letter = step(tray, NOW + 30 * MINUTE)
    assert letter is None, "nothing new"
    assert step(tray, NOW + 31 * MINUTE, notice("x", NOW + 31 * MINUTE))[1] is not None, "told at once again"


def test_what_was_seen_is_not_told_again_however_often_it_is_read() -> None:
    tray, letter = step(Outbox(NOW - MINUTE), NOW, notice("1"), notice("1"))
    assert letter is not None
    assert letter.count == 1
    for later in (1000, 16 * MINUTE, 40 * MINUTE):
        tray, letter = step(tray, NOW + later, notice("1"))
        assert letter is None
    late = notice("late", NOW - OVERLAP + 1)
    assert step(tray, NOW + 40 * MINUTE, late)[1] is not None, "a search showed it late"


def test_a_clock_that_is_ahead_hides_nothing() -> None:
    tray, _ = step(Outbox(NOW - MINUTE), NOW, notice("ahead", NOW + 90 * MINUTE))
    assert tray.mark <= NOW
    _, letter = step(tray, NOW + 20 * MINUTE, notice("2", NOW + 1000))
    assert letter is not None


def test_letters_of_a_window_have_a_bound_and_other_topics_are_gathered() -> None:
    tray, letters = Outbox(NOW - MINUTE), 0
    for second in range(600):
        at = NOW + second * 1000
        tray, letter = step(tray, at, notice(str(second), at, owner=f"owner-{second}"))
        letters += letter is not None
    assert letters == OPS.most
    assert len(tray.gathered) <= MAX_TOPICS + 1
    _, letter = step(tray, NOW + 15 * MINUTE)
    assert letter is not None
    assert letter.count == 600 - OPS.most
    assert "more topics" in notification_text(letter, "http://h")


def test_only_one_of_several_keepers_has_a_letter_until_it_is_surely_not_being_sent() -> None:
    tray, letter = take_up(gather(Outbox(NOW - MINUTE), [notice("1")], OPS, NOW), OPS, NOW)
    assert letter is not None
    assert take_up(tray, OPS, NOW + SENDING - 1) == (tray, None)
    tray, again = take_up(tray, OPS, NOW + SENDING)
    assert again is not None
    assert (again.n, again.topics, again.tries) == (letter.n, letter.topics, 2), "the same letter"
    assert was_sent(tray, letter) == tray, "whoever was slow does not cross out what another sends"
    assert was_sent(tray, again).letter is None


def test_while_a_receiver_is_away_all_is_gathered_and_told_in_few_letters() -> None:
    tray, now, tried = Outbox(NOW - MINUTE), NOW, 0
    for number in range(500):
        now = NOW + number * 10_000
        tray, letter = take_up(gather(tray, [notice(str(number), now)], OPS, now), OPS, now)
        if letter is not None:
            tried += 1
            tray = was_not_sent(tray, letter, now)
    assert tried < 15, "it waits longer each time"
    assert [wait_after(number) for number in (1, 2, 3, 50)] == [1000, 2000, 4000, 3_600_000]
    told = 0
    for later in range(61):
        tray, letter = step(tray, now + later * MINUTE)
        told += letter.count if letter else 0
    assert told == 500
    assert tray.n == 2
    assert given_up(Notification(1, (), NOW, GIVE_UP_AFTER))


def test_who_hears_of_what() -> None:
    topic = Topic("lab", NotificationKind.ALERT, "exlet", "ada")
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
    _, letter = step(Outbox(NOW - MINUTE), NOW, notice("1", owner=owner), notice("2", cause="disk"))
    assert letter is not None
    assert not set("\r\n\x1b") & set(notification_subject(letter))
    assert len(notification_subject(letter)) <= 150
    assert "\x1b" not in notification_text(letter, "http://h")
    assert notification_public(letter, "ops.1", "http://h")["count"] == 2


NOTICES = st.builds(
    notice,
    st.integers(0, 60).map(str),
    st.integers(NOW, NOW + 3600_000),
    cause=st.sampled_from(["memory", "node", "disk"]),
    owner=st.sampled_from(["ada", "grace"]),
    tenant=st.sampled_from(["lab", "other"]),
)


@given(st.lists(st.tuples(st.lists(NOTICES, max_size=5), st.booleans(), st.integers(0, 30 * MINUTE)), max_size=30))
def test_whatever_happens_each_is_told_once_and_the_tray_survives_its_writing(
    looks: list[tuple[list[NotificationEvent], bool, int]],
) -> None:
    tray, now, told, wanted = Outbox(NOW - MINUTE), NOW, 0, dict[str, int]()
    for found, taken, wait in looks:
        now += wait
        # As sources tell: what is older than the overlap was read before.
        found = [one._replace(at=min(one.at, now)) for one in found if min(one.at, now) > tray.mark - OVERLAP]
        for one in found:
            if OPS.wants(one) and one.id not in wanted:
                wanted[one.id] = one.at
        known = [one._replace(at=wanted.get(one.id, one.at)) for one in found]
        tray, letter = take_up(gather(tray, known, OPS, now), OPS, now)
        if letter is not None:
            tray = was_sent(tray, letter) if taken else was_not_sent(tray, letter, now)
            told += letter.count if taken else 0
        assert outbox_of(orjson.loads(orjson.dumps(outbox_plain(tray)))) == tray
    for _ in range(60):
        now += 2 * 3600_000
        tray, letter = step(tray, now)
        told += letter.count if letter else 0
    assert told == len(wanted)
