"""Files of schedules: read with their defaults, refused with line and column."""

from __future__ import annotations

import pytest

from forestay.domain.flows.schedule import DAY, Overlap, RunSchedule
from forestay.formats.flows.schedule_yaml import read_schedules

FILE = """
forestay: 1
schedules:
  nightly:
    flow: nightly.yaml
    cron: 0 2 * * *
    params: {day: "${scheduled.date}"}
    time_zone: Europe/Berlin
    catch_up: 6 h
    overlap: buffer-one
    paused: true
    note: until the detector is back
  hourly: {flow: fit_all, cron: ["@hourly", "30 * * * *"]}
"""


def test_a_file_is_read_with_what_it_leaves_out() -> None:
    read = read_schedules(FILE)
    assert read.problems == ()
    nightly, hourly = read.schedules
    assert nightly == RunSchedule(
        "nightly", "nightly.yaml", ("0 2 * * *",), {"day": "${scheduled.date}"}, "Europe/Berlin", 6 * 3600, Overlap.BUFFER_ONE,
        paused=True, note="until the detector is back",
    )  # fmt: skip
    assert hourly == RunSchedule("hourly", "fit_all", ("@hourly", "30 * * * *"))
    assert (hourly.time_zone, hourly.catch_up, hourly.overlap) == ("UTC", DAY, Overlap.SKIP)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("forestay: 1", 1, "'schedules' is missing"),
        ("schedules: {a: {flow: f, cron: '@daily'}}", 1, "add 'forestay: 1'"),
        ("forestay: 1\nschedules: {a: {cron: '@daily'}}", 2, "'flow' is missing"),
        ("forestay: 1\nschedules: {a: {flow: f, cron: '@daily', zone: UTC}}", 2, "has no field 'zone'"),
        ("forestay: 1\nschedules: {a: {flow: f, cron: 'never'}}", 2, "schedules.a.cron"),
        ("forestay: 1\nschedules: {a: {flow: f, cron: '@daily', overlap: cancel}}", 2, "one of skip"),
        ("forestay: 1\nschedules: [", 2, "Invalid YAML"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, words: str) -> None:
    read = read_schedules(text)
    assert read.schedules == ()
    assert any(problem.line == line and words in str(problem) for problem in read.problems), read.problems
