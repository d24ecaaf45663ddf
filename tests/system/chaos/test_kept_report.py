"""A campaign's report becomes a result of a benchmark, and the page "Proof" can tell it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from bench import harness
from bench.report import beside, results
from tests.system.chaos.audit import Verdict
from tests.system.chaos.kept_report import figures_of, keep_report
from tests.system.chaos.sizes import RELEASE, SMALL, Size

FAULTS = {"kill pilot": 23, "kill server": 3, "stop pilot": 8, "lost answer to server": 4}


def report(size: Size, **wrong: Any) -> dict[str, Any]:
    verdict = replace(
        Verdict(jobs=size.jobs, starts=653, extra_attempts=23, deaths=[0.3, 0.4], silences=[1.1]), **wrong
    )
    return {
        "size": asdict(size), "seed": 7, "seconds": 203.1, "complaints": [], "verdict": asdict(verdict), "submitter": {}, "faults": FAULTS,
    }  # fmt: skip


def test_what_is_wrong_is_counted() -> None:
    good = figures_of(report(SMALL))
    assert (good["kills"], good["lost"], good["duplicates"], good["unrecorded"]) == (26, 0, 0, 0)
    bad = figures_of(report(SMALL, lost=["a"], unfinished=["b"], unnoticed=["c"], unpublished=["d"], unrecorded=["e"]))
    assert (bad["lost"], bad["duplicates"], bad["unrecorded"]) == (2, 2, 1)


def test_a_release_campaign_is_told_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_SMOKE", raising=False)
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    assert "was not completed yet" in beside.campaign_sentence()
    (tmp_path / "report.json").write_text(json.dumps(report(RELEASE)))
    assert keep_report(tmp_path, commit="abc") == tmp_path / "chaos_release.json"
    campaign_sentence = beside.campaign_sentence()
    assert "100,000 jobs" in campaign_sentence
    assert "26 of them kills: 0 lost, 0 undetected duplicates" in campaign_sentence
    assert "an unknown commit, load not noted; *measured before*: command not kept" in campaign_sentence
    assert beside.commits([{"figures": figures_of(report(RELEASE))}])[1] is False, "a tenth of what is asked for"


def test_a_small_campaign_is_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    (tmp_path / "report.json").write_text(json.dumps(report(SMALL)))
    assert keep_report(tmp_path) == tmp_path / ".smoke" / "chaos_small.json"
