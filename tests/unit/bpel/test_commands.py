"""`forestay bpel check` and `adapt` ask no server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.apps.cli.conftest import Shell
from tests.unit.bpel.jobs import JOBS, POLLING, job_process


def test_check_says_what_becomes_of_it(forestay: Shell, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.bpel", tmp_path / "bad.bpel"
    good.write_text(job_process(POLLING))
    bad.write_text(job_process("<rethrow/>"))
    ended = forestay("bpel", "check", str(good))
    assert (ended.code, ended.err) == (0, "")
    assert "0 refused" in ended.out
    ended = forestay("bpel", "check", str(bad), "--json")
    assert ended.code == 1
    entries = json.loads(ended.out)["entries"]
    assert [entry["construct"] for entry in entries if entry["fate"] == "refused"] == ["rethrow"]


def test_adapt_writes_a_process_that_is_good(forestay: Shell, tmp_path: Path) -> None:
    source, target = tmp_path / "p.bpel", tmp_path / "adapted.bpel"
    source.write_text(job_process(POLLING))
    assert forestay("bpel", "adapt", str(source), "--out", str(target)).code == 0
    assert target.read_text().count("forestay.jobs") == 4, "two invokes, each with its partner link and its call"
    assert forestay("bpel", "check", str(target)).code == 0
    assert forestay("bpel", "adapt", str(tmp_path / "none")).code == 2


def test_what_is_refused_is_not_run(forestay: Shell, tmp_path: Path) -> None:
    bad, job = tmp_path / "bad.bpel", tmp_path / "job.jsdl"
    bad.write_text(job_process("<rethrow/>"))
    ended = forestay("bpel", "run", str(bad))
    assert (ended.code, ended.out) == (2, "")
    assert "rethrow" in ended.err
    job.write_text(JOBS["first.jsdl"].replace("JobDescription", "Nothing"))
    ended = forestay("bpel", "run", str(bad), "--jsdl", str(job))
    assert "job.jsdl" in ended.err
