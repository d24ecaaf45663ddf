"""`forestay inbox show` and its like: one error in words, and what people say of it."""

from __future__ import annotations

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, incident_json

ERROR = {
    "fingerprint": "1-0a1b2c3d4e5f", "title": "Node failure on <id> \x1b[31m" + "and long words " * 9, "cause": "node", "task": "align", "state": "snoozed",
    "assignee": "olga", "until": "2026-05-03T10:00:00.000Z", "since": "2026-05-01T10:00:00.000Z", "by": "olga", "why": "a disk is ordered", "count": 1234,
    "waiting": 34, "recovered": 1000, "given_up": 200, "newest": "3f9a1c7e-0000-4000-9000-000000000000", "first_seen": "2026-04-01T10:00:00.000Z",
    "last_seen": "2026-05-01T10:00:00.000Z", "hours": [0] * 20 + [1, 2, 4, 8], "hours_since": "2026-05-01T10:00:00.000Z",
    "tags": {"host": {"node17": 1234}, "owner": {f"user{n}": 9 - n for n in range(8)}, "site": {}, "flow": {}, "exit_code": {"1": 1234}},
    "retry_record": {"words": "seen 14 times here, retry helped 12 of 13"},
    "common": [{"tag": "host", "value": "node17", "share": 1.0, "share_of_others": 0.04}],
    "samples": [{"incident": "i", "job": "4f1c9d2a-0000", "owner": "ada", "at": "2026-05-01T10:00:00.000Z", "host": "node17", "deciding": ["Node failure on n17"],
                 "log": ["read 17 lines", "Node failure on n17"]}],
}  # fmt: skip


@pytest.fixture(autouse=True)
def an_error(api: FakeApi) -> None:
    api.errors["1-0a1b2c3d4e5f"] = dict(ERROR)


def test_an_error_is_shown_in_words(forestay: Shell) -> None:
    shown = forestay("inbox", "show", "1-0a1b2c3d4e5f")
    assert shown.code == 0, shown.err
    for words in (
        "1,234 failures since",
        "34 waiting, 1,000 recovered, 200 given up",
        "node · task align · snoozed until",
        "assigned to olga",
        "Retries        seen 14 times here, retry helped 12 of 13",
        "olga: a disk is ordered",
        "All of the last seven days on host node17; 4% of the other failures",
        "user0 9, user1 8, user2 7, user3 6, user4 5, and 3 more",
        "  read 17 lines\n> Node failure on n17",
        "▂▃▅█",
    ):
        assert words in shown.out, words
    assert "\x1b" not in shown.out, "what a program printed moves no cursor"


def test_of_many_failures_at_least_so_many_recovered(forestay: Shell, api: FakeApi) -> None:
    api.errors["1-0a1b2c3d4e5f"]["recovered_whole"] = False
    assert "34 waiting, 1,000 or more recovered, 200 given up" in forestay("inbox", "show", "1-0a1b2c3d4e5f").out


def test_an_error_is_named_by_an_incident_that_has_it(forestay: Shell, api: FakeApi) -> None:
    incident = incident_json(5)
    api.incidents.append(incident)
    ended = forestay("inbox", "resolve", incident["id"][:8], "--reason", "release 4.2")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("1-0a1b2c3d4e5f: resolve")
    assert api.requests[-1].body == {"act": "resolve", "assignee": "", "seconds": 0, "reason": "release 4.2"}


def test_the_acts_say_what_is_meant(forestay: Shell, api: FakeApi) -> None:
    for words, wanted in (
        (("assign", "olga"), {"act": "assign", "assignee": "olga"}),
        (("assign", "nobody"), {"act": "assign", "assignee": ""}),
        (("snooze", "2d"), {"act": "snooze", "seconds": 172_800}),
        (("acknowledge",), {"act": "acknowledge"}),
        (("reopen",), {"act": "reopen"}),
    ):
        ended = forestay("inbox", words[0], "1-0a1b2c3d4e5f", *words[1:])
        assert ended.code == 0, ended.err
        assert wanted.items() <= api.requests[-1].body.items()


def test_one_of_a_release_before_has_no_error(forestay: Shell, api: FakeApi) -> None:
    incident = incident_json(6, fingerprint="")
    api.incidents.append(incident)
    ended = forestay("inbox", "show", incident["id"])
    assert ended.code == 2
    assert "before errors had fingerprints" in ended.err


def test_what_is_snoozed_is_counted_under_the_list(forestay: Shell, api: FakeApi) -> None:
    api.snoozed = 2
    assert "2 snoozed" in forestay("inbox").err
    forestay("inbox", "--snoozed")
    assert api.sent("GET", "/v1/inbox")[-1].query["snoozed"] == ["show"]


@pytest.mark.finding("F-D1")
def test_runs_that_wait_for_somebody_are_counted_under_the_list(forestay: Shell, api: FakeApi) -> None:
    api.held_runs = 3
    assert "3 runs are held: forestay runs list --held" in forestay("inbox").err
    api.held_runs = 1
    assert "1 run is held: forestay runs list --held" in forestay("inbox").err
