"""Histories made by hand: the checker names what is wrong with them, and finds nothing wrong with the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.system.linearizability.history import write_history
from tests.system.linearizability.verdict import Verdict, judge

pytestmark = pytest.mark.slow


def write(call: int, back: int, over: tuple[int, str] | None, value: str, number: int = 0) -> dict[str, Any]:
    """A version-checked write from one time to another; without a number it was not acknowledged."""
    result = {"result": "written", "version": {"number": number, "term": 1}} if number else {"result": "unknown"}
    expected = {"expected": {"number": over[0], "term": 1, "value": over[1]}} if over else {}
    kind = "cas" if over else "create"
    client = {"level": "store", "client": f"writer of {value}", "document": "doc"}
    return {**client, "kind": kind, "call": call, "return": back, "value": value, **expected, **result}


def read(call: int, back: int, value: str, number: int, kind: str = "read") -> dict[str, Any]:
    facts = {"level": "store", "client": "reader", "document": "doc", "kind": kind, "call": call, "return": back}
    return {**facts, "result": "found", "value": value, "version": {"number": number, "term": 1}}


def verdict_on(folder: Path, *operations: dict[str, Any]) -> Verdict:
    write_history(operations, folder / "history.jsonl")
    return judge(folder / "history.jsonl")


def test_a_sound_history(tmp_path: Path) -> None:
    verdict = verdict_on(
        tmp_path,
        write(1, 2, None, "a", 1),
        write(3, 4, (1, "a"), "b"),
        write(3, 9, (1, "a"), "c"),
        read(4, 5, "a", 1),
        write(6, 7, (2, "b"), "d", 3),
        read(8, 9, "a", 1),
        read(8, 9, "c", 2),
        read(10, 11, "d", 3, "final"),
    )
    assert verdict.verdict == "OK"
    assert (verdict.operations, verdict.acknowledged) == (8, 2)
    assert (verdict.unknown, verdict.unknown_effective) == (2, 1)
    assert (verdict.reads, verdict.stale_reads, verdict.dirty_reads) == (3, 1, 1)


def test_a_lost_update(tmp_path: Path) -> None:
    """Both writers read the same version, and both were told that theirs was written."""
    verdict = verdict_on(
        tmp_path,
        write(1, 2, None, "a", 1),
        write(3, 4, (1, "a"), "b", 2),
        write(5, 6, (1, "a"), "c", 3),
        read(10, 11, "c", 3, "final"),
    )
    assert verdict.verdict == "VIOLATION"
    assert any("two acknowledged writes over one version (1/1)" in line for line in verdict.violations)
    assert (tmp_path / "doc.html").read_text().startswith("<!doctype html>")


def test_two_creates(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, write(1, 2, None, "a", 1), write(1, 2, None, "b", 2))
    assert verdict.verdict == "VIOLATION"
    assert "two acknowledged writes over one version (nothing)" in verdict.violations[0]


def test_a_lost_acknowledged_write(tmp_path: Path) -> None:
    verdict = verdict_on(
        tmp_path, write(1, 2, None, "a", 1), write(3, 4, (1, "a"), "b", 2), read(10, 11, "a", 1, "final")
    )
    assert verdict.verdict == "VIOLATION"
    assert "an acknowledged write is lost" in verdict.violations[0]


def test_a_lost_acknowledged_write_with_others_after_it(tmp_path: Path) -> None:
    verdict = verdict_on(
        tmp_path,
        write(1, 2, None, "a", 1),
        write(3, 4, (1, "a"), "b", 2),
        write(5, 6, (1, "a"), "c"),
        write(7, 8, (3, "c"), "d", 4),
        read(10, 11, "d", 4, "final"),
    )
    assert verdict.verdict == "VIOLATION"


def test_a_copy_that_differs(tmp_path: Path) -> None:
    verdict = verdict_on(
        tmp_path,
        write(1, 2, None, "a", 1),
        write(3, 4, (1, "a"), "b", 2),
        read(10, 11, "b", 2, "final"),
        read(10, 11, "a", 1, "final"),
    )
    assert verdict.verdict == "VIOLATION"


def test_two_claims_of_one_attempt(tmp_path: Path) -> None:
    job = {"level": "writer", "document": "job"}
    claim = {**job, "kind": "claim", "attempt": 1, "result": "settled", "state": "running", "rev": 2}
    verdict = verdict_on(
        tmp_path,
        {**job, "client": "x", "kind": "create", "call": 1, "return": 2, "result": "written"},
        {**claim, "client": "x", "claim": "A", "call": 3, "return": 4},
        {**claim, "client": "y", "claim": "B", "call": 3, "return": 4},
    )
    assert verdict.verdict == "VIOLATION"
    assert "two settled claims for one attempt (1)" in verdict.violations[0]


def test_a_history_that_takes_too_long_is_not_called_sound(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    many = [
        write(number, number + 1, (number - 1, f"v{number - 1}"), f"v{number}", number) for number in range(2, 5_000)
    ]
    write_history([write(1, 2, None, "v1", 1), *many], history)
    assert judge(history).verdict == "OK"
    assert judge(history, timeout="1ns").verdict == "UNDECIDED"


def test_half_a_history_is_refused(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    write_history([write(1, 2, None, "a", 1)], history)
    history.write_bytes(history.read_bytes()[:-20])
    with pytest.raises(SystemExit, match="line 1"):
        judge(history)
