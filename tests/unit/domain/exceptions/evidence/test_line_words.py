"""What is asked of every line of a log is asked by plain texts first; the answers are those of the expressions that say it whole."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples

from forestay.domain.exceptions.causes.classify import is_heading
from forestay.domain.exceptions.evidence import evidence
from forestay.domain.exceptions.evidence.evidence import LONGEST_LINE, bounded_lines, only_informs, tells_trouble, warns
from forestay.domain.exceptions.evidence.linear_regex import compiled

COLLECTED = Path(__file__).parents[3] / "packs"
TROUBLE = compiled(
    r"error|exception|traceback|fail|fatal|abort|kill|cannot|can't|could not|unable|denied|no such|not found|terminat|panic|core dump|refused|invalid|exceed|exit|signal|^\s+at |^\s*file \"|^\s*caused by"
)
HEADING = re.compile(r":\s*$|^\s*\S+$|^\W+$|^\s*(?:shutting down|tip: |complete log|feature: )")
BREAKS = re.compile(r"\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
ALL_WARNS = re.compile(evidence._WARNS.pattern)
WORDS = (
    "warning", "warn", "userwarning: x", "deprecated", "[w]", "re-trying", "retrying", "will be retried", "retry(", "retry in", "2 retries left", "attempt 2 of 3", "ignored",
    "ignoring", "non-fatal", "nonfatal", "skipping", "using defaults", "falling back", "fallback", "no errors", "0 problems", "zero failures", "errors: 0", "error rate",
    "might be corrupted:", "succeeded", "recovered", "if this problem persists", "at ", "  at x", "\tat x", 'file "x"', ' file "x"', "caused by", " caused by", "no such", "core dump",
    "info", "[i]", "debug", "trace", "notice", "verbose", "[m]", "[d]", "[m::", "done:", "done: ", ": ", "tip: x", "  shutting down", "====", "word", "\u3000word", "exit", "é", "\ud800", "\x1f", "\u2003",
)  # fmt: skip


def collected() -> list[str]:
    """Every line of every failure that was collected, and of ordinary output."""
    lines = (COLLECTED / "ordinary_output.txt").read_text(encoding="utf-8").splitlines()
    for file in sorted(COLLECTED.glob("*.jsonl")):
        for record in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            log = record.get("log_tail", "")
            lines += bounded_lines(log if isinstance(log, str) else "\n".join(log))
    return lines


def same(line: str) -> None:
    lowered = line.lower()
    assert tells_trouble(lowered) == (TROUBLE.search(lowered.encode("utf-8", "replace")) is not None), line
    assert warns(lowered) == (ALL_WARNS.search(lowered) is not None), line
    assert is_heading(lowered) == (HEADING.search(lowered) is not None), line
    level = re.search("^" + evidence._LEVEL.pattern, lowered) is not None
    assert only_informs(lowered) == (level and not tells_trouble(lowered)), line


def lines_by_expressions(text: str) -> tuple[str, ...]:
    """What `bounded_lines` says, line by line from the beginning."""
    bare = evidence._ESCAPES.sub("", text).replace("\x00", "")
    lines = [evidence.shortened(part.rstrip()) for part in BREAKS.split(bare)]
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines[-evidence.MOST_LINES :])


def test_the_lines_of_all_collected_failures() -> None:
    lines = collected()
    assert len(lines) > 3_000
    for line in lines:
        same(line)
    assert sum(map(tells_trouble, map(str.lower, lines))) > 500
    assert sum(map(warns, map(str.lower, lines))) > 100


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=4), st.sampled_from(["", " ", "x", ", "]))
@settings(max_examples=examples(400))
def test_lines_of_words_that_decide(words: list[str], between: str) -> None:
    line = between.join(words)
    if not BREAKS.search(line):
        same(line)


@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "",
                " ",
                "x" * (LONGEST_LINE + 9),
                "\n",
                "\r\n",
                "\r",
                "\x0b",
                "\x1d",
                "\x85",
                "\u2028",
                "\x1b[0m",
                "\x1b[2K",
                "\x00",
                "\t",
            ]
        ),
        max_size=30,
    )
)
@settings(max_examples=examples(200))
def test_a_log_is_parted_into_the_same_lines(parts: list[str]) -> None:
    text = "".join(parts)
    assert bounded_lines(text) == lines_by_expressions(text)
