"""Patterns that people teach: what is drafted from an error's lines, and the pack that keeps them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.causes.cause import Cause, RetryNeed
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.causes.failure_pattern import FailurePattern, PatternConditions
from forestay.domain.exceptions.causes.fingerprint import normalised_line
from forestay.domain.exceptions.causes.taught_pattern import (
    MOST_CORRECTED,
    CorrectedCause,
    TaughtPack,
    drafted,
    is_taught,
    last_shared_line,
    matches,
    taught_pattern,
    telling_line,
)
from forestay.domain.exceptions.evidence.evidence import Evidence, PreparedEvidence, Search
from forestay.domain.exceptions.evidence.linear_regex import problem_of


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        (
            "LustreError: 11-0: scratch-OST0042-osc-ffff88: operation ost_write to node 10.1.2.3@tcp failed: rc = -19",
            r"(?i)LustreError: \S+: \S+: operation ost_write to node \S+@tcp failed: rc = -19",
        ),
        (
            "2026-11-18 10:00:00 ERROR /opt/x/app/run.py:120: cannot attach volume 'vol-ab12'",
            r"(?i)ERROR \S*run\.py(?::\d+)*: cannot attach volume",
        ),
        ("slot  7:  quux daemon failed", r"(?i)slot\s+\S+:\s+quux\s+daemon\s+failed"),
        ("Killed", ""),
        ("17 / 23", ""),
        ("", ""),
    ],
)
def test_a_draft_keeps_the_words_and_leaves_gaps_for_what_varies(line: str, expression: str) -> None:
    assert drafted([line]) == expression
    assert not expression or matches(expression, line)


def test_a_gap_of_several_words_is_drafted_wide_enough_for_all_members() -> None:
    lines = [
        "cannot lock the spool of 'two words' for writing",
        "cannot lock the spool of 'x' for writing",
        "cannot lock the spool of 'a/b c d' for writing",
    ]
    expression = drafted(lines)
    assert all(matches(expression, line) for line in lines)
    assert not matches(expression, "cannot lock the door")


@given(st.text(max_size=300))
def test_what_is_drafted_can_always_be_used_and_never_matches_everything(line: str) -> None:
    expression = drafted([line])
    assert not expression or not problem_of(expression)
    assert not expression or not matches(expression, "")


WORDS = st.sampled_from(["cannot", "attach", "volume", "quux", "daemon", "failed", "spool", "refused", "lost", "on"])
VARIES = st.sampled_from(["/data/run_7/x.bam", "17", "node042", "10.2.3.4", "'sample 9'", "0xdeadbeef", "12.5 s"])


@given(st.lists(st.one_of(WORDS, WORDS, VARIES), min_size=4, max_size=12))
def test_a_draft_matches_the_line_that_it_was_drafted_from(parts: list[str]) -> None:
    line = " ".join(parts)
    expression = drafted([line])
    assert not expression or matches(expression, line), (normalised_line(line), expression)


def test_without_a_line_of_trouble_the_last_line_that_all_share_is_taken() -> None:
    def seen(log: str) -> PreparedEvidence:
        return PreparedEvidence(Evidence(exit_code=3, log_tail=tuple(log.splitlines())))

    members = [
        seen("reading 7 records\nspool 7 went away\nbye from host1"),
        seen("reading 99 records\nspool 12 went away\nend"),
    ]
    assert last_shared_line(members) == "spool 7 went away"
    assert last_shared_line([seen("x\n1 2 3\n"), seen("y\n1 2 3\n")]) == ""
    assert last_shared_line([]) == ""
    assert telling_line("spool 7 went away", members[0]) == "spool 7 went away"
    assert telling_line("exit code 3", members[0]) == ""
    batch = PreparedEvidence(Evidence(scheduler_state="FAILED", scheduler_reason="the licence pool is empty"))
    assert telling_line("FAILED: the licence pool is empty", batch) == "the licence pool is empty"


def test_a_pattern_becomes_one_that_a_classifier_asks_beside_the_others() -> None:
    base = FailurePattern("p", Cause.CODE, RetryNeed.NO, 0.6, 30, PatternConditions(lines=(Search("spool"),)), "Spool.")
    taught = taught_pattern("1-ab", "t", "(?i)spool of doom", Cause.NODE, None, ["spool of doom 1"], by="olga", at=5)
    assert (taught.name, taught.retry, is_taught(taught.name), is_taught("taughtless")) == (
        "taught-1-ab", RetryNeed.ELSEWHERE, True, False,
    )  # fmt: skip
    packs = Classifier([base])
    both = packs.with_patterns([taught.pattern()])
    doom, other = (Evidence(exit_code=1, log_tail=(line,)) for line in ("error: Spool of Doom 7", "error: spool"))
    assert [packs.classify(evidence).pattern for evidence in (doom, other)] == ["", "p"]
    found = both.classify(doom)
    assert (found.cause, found.pattern, found.confidence >= 0.8) == (Cause.NODE, "taught-1-ab", True)
    assert both.classify(other).pattern == "p"
    assert {pattern.name for pattern in both.patterns} == {"p", "taught-1-ab"}


def test_a_pack_counts_its_versions_replaces_by_name_and_survives_the_store() -> None:
    def made(name: str, cause: Cause = Cause.NODE) -> object:
        return taught_pattern(name, "t", "a quux", cause, RetryNeed.SAME, ["a quux"], by="olga", at=1, why="so")

    pack = TaughtPack()
    for name in ("1-a", "1-b", "1-a"):
        pack = pack.with_pattern(made(name))  # type: ignore[arg-type]
    assert (pack.version, [pattern.fingerprint for pattern in pack.patterns]) == (3, ["1-b", "1-a"])
    pack = pack.with_pattern(made("1-c", Cause.DISK), instead_of=("taught-1-a",))  # type: ignore[arg-type]
    assert [pattern.fingerprint for pattern in pack.patterns] == ["1-b", "1-c"]
    for number in range(MOST_CORRECTED + 5):
        pack = pack.with_correction(CorrectedCause(f"i{number}", Cause.DISK, "olga", number))
    assert (len(pack.corrected), pack.corrected[0].incident) == (MOST_CORRECTED, f"i{MOST_CORRECTED + 4}")
    assert TaughtPack.from_dict(pack.to_dict()) == pack
    gone = pack.without("taught-1-b")
    assert (gone.version, gone.get("taught-1-b"), gone.get("taught-1-c") is not None) == (pack.version + 1, None, True)
