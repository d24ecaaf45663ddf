"""`forestay try`: from kept accounting or from the commands of a batch system to a summary and a page, without a server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.formats.accounting.campaign import Truth, lines


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Truth]:
    truth = Truth()
    file = tmp_path / "sacct.txt"
    file.write_text("\n".join(lines(600, 5, truth)) + "\n")
    return file, truth


def test_a_kept_file(forestay: Shell, kept: tuple[Path, Truth], tmp_path: Path) -> None:
    file, truth = kept
    page = tmp_path / "page.html"
    for name in ("FORESTAY_TOKEN", "FORESTAY_SERVER"):
        forestay.environment.pop(name, None)
    forestay.environment["COLUMNS"] = "100"
    ended = forestay("try", "--from", str(file), "--out", str(page))
    assert ended.code == 0, ended.err
    assert f"{sum(truth.failures.values())} failed attempts" in ended.out
    assert all(len(line) <= 100 for line in ended.out.splitlines())
    for word in ("CAUSE", "OWNER", "HOST", "STARTER RULE", "memory", "starter-time"):
        assert word in ended.out
    assert str(page) in ended.err
    assert "<h1>What failures cost</h1>" in page.read_text()
    report = json.loads(forestay("try", "--json", "--from", str(file), "--out", str(page)).out)
    assert report["attempts"] == 600
    assert report["failed"]["core_hours"] == pytest.approx(sum(truth.hours.values()))


def test_the_commands_of_slurm_and_htcondor_are_asked(forestay: Shell, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    # As sacct does: an older release, which lacks columns, and the delimiter that it is asked for.
    sacct = f"""#!/bin/sh
case "$1" in --helpformat) echo "JobID JobIDRaw User State ExitCode NCPUS AllocCPUS ElapsedRaw End JobName"; exit 0;; esac
for word in "$@"; do case "$word" in --delimiter=*) between=${{word#--delimiter=}};; --format=*) echo "$word" >> {tmp_path}/asked;; esac; done
printf 'JobID|JobIDRaw|User|State|ExitCode|AllocCPUS|ElapsedRaw|End|JobName\\n9|9|ann|TIMEOUT|0:0|8|3600|'"$(date +%Y-%m-%dT%H:%M:%S)"'|a|b\\n' | sed "s/|/$between/g"
"""
    (programs / "sacct").write_text(sacct)
    (programs / "condor_history").write_text("#!/bin/sh\necho 'no schedd' >&2; exit 1\n")
    for name in ("sacct", "condor_history"):
        (programs / name).chmod(0o755)
    forestay.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    ended = forestay("try", "--json", "--out", str(tmp_path / "page.html"))
    assert ended.code == 0, ended.err
    assert "condor_history: no schedd" in ended.err
    report = json.loads(ended.out)
    assert (report["attempts"], report["failed"]["core_hours"]) == (1, 8.0)
    assert report["causes"][0]["cause"] == "time"
    assert "StdErr" not in (tmp_path / "asked").read_text()
    (programs / "sacct").write_text("#!/bin/sh\necho 'sacct: error: no slurmdbd' >&2\n")  # and ends with 0, as it does
    ended = forestay("try", "--out", str(tmp_path / "none.html"))
    assert ended.code == 1
    assert ": sacct: error: no slurmdbd\n" in ended.err
    assert "nothing was read from sacct and condor_history; name files with kept output with --from" in ended.err
    assert not (tmp_path / "none.html").exists()


def test_nothing_to_read_and_files_that_nobody_knows(
    forestay: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = tmp_path / "notes.txt"
    stranger.write_text("hello\n")
    ended = forestay("try", "--from", str(stranger))
    assert ended.code == 2
    assert "is none of" in ended.err
    assert forestay("try", "--from", str(tmp_path / "none")).code == 2
    monkeypatch.chdir(tmp_path)
    forestay.environment["PATH"] = str(tmp_path)
    ended = forestay("try")
    assert ended.code == 3
    assert "name files with --from" in ended.err
    assert not (tmp_path / "forestay-try.html").exists()
