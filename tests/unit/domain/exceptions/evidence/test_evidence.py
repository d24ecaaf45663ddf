"""Which lines say something about a failure: tone, quotation, prefixes."""

from __future__ import annotations

import pytest

from forestay.domain.exceptions.evidence.evidence import (
    behind_prefix,
    only_informs,
    quoted_lines,
    tells_trouble,
    warns,
)


@pytest.mark.parametrize(
    "line",
    [
        "warning: could not load libx.so",
        "futurewarning: np.bool is gone",
        "connection reset by peer, retrying (1/5)",
        "checking for errors... 0 errors found",
        "config not found, using defaults",
    ],
)
def test_it_warns(line: str) -> None:
    assert warns(line)


@pytest.mark.parametrize(
    "line",
    ["error: no space left", "  warning  evicted  37m   kubelet  the node was low on resource", "fatal: refused"],
)
def test_it_does_not_only_warn(line: str) -> None:
    assert not warns(line)


def test_information_with_words_of_trouble_is_not_only_information() -> None:
    assert only_informs("2026-01-01 10:00:00 info timeout set to 30")
    assert not only_informs("info taskset: lost task 3: outofmemoryerror")
    assert tells_trouble("  at a.b.c(d.java:3)")


def test_source_scripts_and_directives_are_quoted() -> None:
    log = [
        'file "a.py", line 3, in run',
        '    raise timeouterror("gave up")',
        "valueerror: no",
        "command executed:",
        "  curl http://x",
        "command exit status:",
        "  1",
        "#sbatch --error=x.err",
        "+ cp a b",
    ]
    assert [place for place in range(len(log)) if quoted_lines(log) >> place & 1] == [1, 4, 7, 8]


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("2022-08-10 05:52:26\tinfo\tx::::casa+\tkeyerror: 'default'", "keyerror: 'default'"),
        ("[2026-01-02t10:00:00z] error valueerror: no", "valueerror: no"),
        ("npm err! typeerror: x", "typeerror: x"),
        ("[1,0]<stderr>: keyerror: 3", "keyerror: 3"),
        ("keyerror: 3", "keyerror: 3"),
    ],
)
def test_what_stands_before_a_line_is_passed_over(line: str, rest: str) -> None:
    assert line[behind_prefix(line) :] == rest
