"""A small campaign of fuzzed rules; `just fuzz-rules --count 1000000` is the large one."""

from __future__ import annotations

from tests.system.fuzz_rules.campaign import campaign


def test_no_fuzzed_rule_acts_on_an_error() -> None:
    report = campaign(5000, seed=20261115)
    assert report.violations == []
    # It would prove nothing if hardly any text passed, or none erred.
    assert report.counts["texts"] == 5000
    assert (
        min(report.counts[kind] for kind in ("passed", "refused", "true", "false", "error", "left out by the index"))
        >= 100
    )
