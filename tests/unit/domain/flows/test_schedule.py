"""Schedules: what may be written, and the parameters of a run for its planned time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from forestay.domain.flows.schedule import RunSchedule, check_schedule, params_at, start_key

GOOD = RunSchedule("nightly", "f" * 64, ("0 2 * * *", "@daily", "*/5 0-6 1,15 JAN MON-FRI", "0 0 2 * * * 2027"))


def test_cron_expressions_of_five_to_seven_fields_and_their_short_names_are_fine() -> None:
    assert list(check_schedule(GOOD)) == []


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        ({"name": "2nd"}, "name", "begins with a letter"),
        ({"cron": ()}, "cron", "1 to 20"),
        ({"cron": ("0 2 * *",)}, "cron[0]", "minute, hour"),
        ({"cron": ("0 2 * * *", "@often")}, "cron[1]", "or @daily"),
        ({"cron": ("0 2 * * *\n* * * * *",)}, "cron[0]", "minute, hour"),
        ({"catch_up": 9}, "catch_up", "10 s to a year"),
        ({"params": {"day": ["${params.day}"]}}, "params", "params.day"),
        ({"params": {"day": "${scheduled.hour}"}}, "params", "scheduled.hour"),
        ({"params": {"day": "${"}}, "params", "only ${scheduled.time}"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(change: dict[str, Any], where: str, words: str) -> None:
    (problem,) = check_schedule(replace(GOOD, **change))
    assert problem.where == where
    assert words in problem.message


def test_the_parameters_have_the_planned_time_in_the_schedules_zone() -> None:
    schedule = replace(GOOD, params={"day": "${scheduled.date}", "at": ["t=${scheduled.time}"], "n": 3})
    berlin = timezone(timedelta(hours=1))
    late = datetime(2026, 12, 31, 23, 30, tzinfo=UTC).astimezone(berlin)
    assert params_at(schedule, late) == {"day": "2027-01-01", "at": ["t=2027-01-01T00:30:00+01:00"], "n": 3}


def test_a_start_is_known_by_schedule_and_time() -> None:
    assert len({start_key("a", 1), start_key("a", 2), start_key("b", 1)}) == 3
