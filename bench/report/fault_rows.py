"""The fault table, row by row: what shows it, whether that passed, and what is missing (`just faults`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.system.faults.table import TABLE, Row

from bench.report.beside import campaign_sentence
from bench.report.results import result, when


def section() -> Iterator[str]:
    found_result = result("fault_table")
    figures: dict[str, Any] = found_result["figures"] if found_result else {"tests": {}, "campaigns": {}}
    counts = {word: sum(row.shown == word for row in TABLE) for word in ("yes", "in part", "no")}
    yield from (
        "## The fault table",
        "",
        f"`just faults` (small) and `just faults full`; {when(found_result) if found_result else 'not run yet'}.",
        "",
        f"Of {len(TABLE)} faults, {counts['yes']} are injected and shown to be harmless, {counts['in part']} in part, {counts['no']} not at all; the last column names what is missing. A row is shown by tests on real components, by campaigns, or by both.",
        "",
        "| # | fault | shown | by | last run | missing |",
        "| --: | --- | --- | --- | --- | --- |",
    )
    for row in TABLE:
        by = ", ".join(
            [*(f"`{test.partition('::')[2]}`" for test in row.tests), *(f"*{campaign}*" for campaign in row.campaigns)]
        )
        yield f"| {row.number} | {row.fault} | {row.shown} | {by or '–'} | {_last(row, figures)} | {row.missing or '–'} |"
    yield from (
        "",
        "| campaign | command | verdict | its output |",
        "| --- | --- | --- | --- |",
    )
    for name, campaign in sorted(figures["campaigns"].items()):
        yield f"| *{name}* | `python -m {campaign['words']}` | {campaign['verdict']}, {campaign['day']}, commit {campaign['commit']}, {campaign['seconds']:.0f} s | {campaign['figures']} |"
    for name in sorted({name for row in TABLE for name in row.campaigns} - set(figures["campaigns"])):
        yield f"| *{name}* | – | not run with this command yet | [earlier runs](benchmarks.md) |"
    fields = {name: test for name, test in figures["tests"].items() if not test["figures"].endswith(" runs")}
    if fields:
        yield from ("", "| test | verdict | what it measured |", "| --- | --- | --- |")
    for name, field in sorted(fields.items()):
        yield f"| `{name.partition('::')[2]}` | {field['verdict']}, {field['day']}, commit {field['commit']}, {field['seconds']:.0f} s | {field['figures']} |"
    yield from (
        "",
        campaign_sentence(),
        "",
    )


def _last(row: Row, figures: dict[str, Any]) -> str:
    verdicts = [figures["tests"].get(test, {}).get("verdict", "not run") for test in row.tests]
    verdicts += [figures["campaigns"].get(name, {}).get("verdict", "not run") for name in row.campaigns]
    if not verdicts:
        return "–"
    if "failed" in verdicts:
        return "failed"
    passed = sum(verdict == "passed" for verdict in verdicts)
    return "passed" if passed == len(verdicts) else f"{passed} of {len(verdicts)} run, passed" if passed else "not run"


def pictures() -> Iterator[tuple[str, str]]:
    yield from ()
