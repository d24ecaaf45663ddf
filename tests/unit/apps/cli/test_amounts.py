"""Sizes, durations, times, columns and harmless text."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import ago, elapsed, lasting, parse_duration, parse_moment, parse_size, size
from forestay.apps.cli.columns import Column, cells, cut, table
from forestay.apps.cli.output import as_json

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("512M", 512 << 20), ("2G", 2 << 30), ("1.5g", 3 << 29), ("2GiB", 2 << 30), ("2GB", 2 << 30), ("64k", 65536), ("1T", 1 << 40), ("0", 0)],
)  # fmt: skip
def test_sizes(text: str, amount: int) -> None:
    assert parse_size(text) == amount


@pytest.mark.parametrize("text", ["", "4000", "G", "-1G", "2X", "1G2M", "nan"])
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="unit"):
        parse_size(text)


@given(st.integers(0, 1 << 55))
def test_a_size_is_shown_within_five_percent(amount: int) -> None:
    shown = size(amount)
    if amount >= 1024:
        assert abs(parse_size(shown) - amount) <= amount * 0.05


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("01:30:00", 5400), ("2-00:00:00", 172800), ("90m", 5400), ("90min", 5400), ("1h30m", 5400), ("45s", 45), ("05:00", 300), ("1d", 86400)],
)  # fmt: skip
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "1x", "m", "-5m", "1:2:3:4"])
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_a_bare_number_where_seconds_are_meant() -> None:
    assert parse_duration("90", bare_seconds=True) == 90


@given(st.integers(0, 10**7))
def test_elapsed_can_be_read_back(seconds: int) -> None:
    assert parse_duration(elapsed(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (185, "3 min 5 s"), (7200, "2 h"), (90061, "1 d 1 h")],
)
def test_lasting(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


def test_moments() -> None:
    assert parse_moment("2h", NOW) == "2026-05-01T10:00:00.000Z"
    assert parse_moment("2h", NOW, ahead=True) == "2026-05-01T14:00:00.000Z"
    assert parse_moment("2026-05-01T12:30:00+02:00", NOW) == "2026-05-01T10:30:00.000Z"
    assert parse_moment("now", NOW) == "2026-05-01T12:00:00.000Z"
    local = datetime(2026, 5, 1).astimezone().astimezone(UTC)
    assert parse_moment("2026-05-01", NOW) == local.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert parse_moment("today", NOW) == parse_moment(NOW.astimezone().date().isoformat(), NOW)
    assert parse_moment("yesterday", NOW) == parse_moment((NOW.astimezone().date() - timedelta(1)).isoformat(), NOW)
    assert parse_moment("9:30", NOW) == parse_moment(f"{NOW.astimezone().date()}T09:30", NOW)
    with pytest.raises(ValueError, match="not a time"):
        parse_moment("yesterday-ish", NOW)


@given(st.text())
def test_a_line_holds_nothing_that_moves_a_cursor(text: str) -> None:
    shown = neutral.line(text)
    assert not any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} or unicodedata.bidirectional(char) in {"RLO", "LRO", "RLE", "LRE", "PDF", "LRI", "RLI", "FSI", "PDI"} for char in shown)  # fmt: skip


@given(st.text())
def test_lines_keep_line_ends_and_tabs_alone(text: str) -> None:
    assert not any(unicodedata.category(line) in {"Cc", "Cs"} and line not in "\n\t" for line in neutral.lines(text))


@given(st.text())
def test_json_is_harmless_and_means_the_same(text: str) -> None:
    shown = as_json({"text": text})
    assert json.loads(shown) == {"text": text}
    assert not any(unicodedata.category(char) in {"Cc", "Cs"} for char in shown)


def test_colours_go_and_the_rest_is_shown_by_number() -> None:
    assert neutral.lines("\x1b[1;31mred\x1b[0m\x1b[2J\rnext\tcolumn") == "red\\x1b[2J\nnext\tcolumn"
    assert neutral.line("a\nb\tc\u202e") == "a\\nb\\tc\\u202e"


def test_wide_characters_take_two_places() -> None:
    assert cells("日本") == 4
    assert cut("日本語", 5) == "日本…"
    assert table([Column("A"), Column("B", right=True)], [["日本", "1"], ["x", "22"]]) == [
        "A     B",
        "日本  1",
        "x    22",
    ]


@pytest.mark.parametrize(
    ("then", "text"),
    [
        ("2026-05-01T11:59:20Z", "40s ago"),
        ("2026-05-01T11:30:00Z", "30m ago"),
        ("2026-05-01T08:30:00Z", "3h ago"),
        ("2026-04-20T12:00:00Z", "11d ago"),
        ("2026-05-01T12:05:00Z", "in 5m"),
        ("2026-05-01T12:00:00.3Z", "0s ago"),
        (None, "-"),
    ],
)
def test_ages(then: str | None, text: str) -> None:
    assert ago(then, NOW) == text


COLUMNS = [Column("ID"), Column("NAME", flexible=True), Column("N", right=True), Column("WHY", flexible=True)]


@given(st.lists(st.lists(st.text(max_size=60), min_size=4, max_size=4), max_size=5), st.integers(20, 120))
def test_a_table_fits_its_width(rows: list[list[str]], width: int) -> None:
    shown = table(COLUMNS, rows, width=width)
    assert len(shown) == len(rows) + 1
    assert all(cells(line) <= width for line in shown)


def test_the_widest_flexible_column_gives_way_first() -> None:
    rows = [["0123456789", "short name", "1", "a very long reason for all of it"]]
    assert table(COLUMNS, rows, width=40)[1] == "0123456789 short name 1 a very long rea…"
    assert table(COLUMNS, rows, width=24)[1] == "0123456789 short n… 1 a…"
    assert table(COLUMNS, rows)[1] == " ".join(rows[0])
