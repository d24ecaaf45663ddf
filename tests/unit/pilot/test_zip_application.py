"""The pilot as one file: it runs a job, also on the oldest Python it promises."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.build_pilot import build
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer


def oldest_python() -> str | None:
    """A Python 3.9 that really starts, if this machine has one."""
    program = shutil.which("python3.9")
    if program and subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0:
        return program
    return None


@pytest.mark.parametrize("python", [sys.executable, oldest_python()], ids=["this-python", "python3.9"])
def test_the_zip_file_runs_a_job(python: str | None, server: FakeServer, tmp_path: Path) -> None:
    if python is None:
        pytest.skip("there is no Python 3.9 here")
    program = tmp_path / "pilot.pyz"
    assert build(program) == build(tmp_path / "again.pyz")
    claim = server.submit("sh", "-c", "echo hello > hello.txt", outputs=["hello.txt"])
    (tmp_path / "token").write_text(ENROL_TOKEN)
    words = ["--outputs", str(tmp_path / "out"), "--work", str(tmp_path / "work"), "--max-jobs", "1"]
    done = subprocess.run(
        [python, str(program), "--server", server.url, "--token-file", str(tmp_path / "token"), *words],
        env={"PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    end = server.end_of(claim)
    assert end["outcome"] == "ok", end["log_tail"]
    assert Path(end["manifest"]["path"]).is_file()
