"""scancel through the shim, before a command that stands in for Slurm's: it is called as it was, and recorded first while a watcher acts."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from forestay.adapters.system.shim_spool import ShimSpool
from forestay.domain.sites.cancel_call import JobSelector

SHIM = Path(__file__).resolve().parents[3] / "shim" / "forestay-shim"
_STAND_IN = """#!/bin/sh
ls "$FORESTAY_SHIM_SPOOL/new" 2>/dev/null | wc -l
printf '<%s>' "$@"; cat; umask; echo "no such job" >&2
exit 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    subprocess.run([SHIM, "--install", tmp_path / "bin"], check=True, stderr=subprocess.PIPE)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "scancel").write_text(_STAND_IN)
    (tmp_path / "slurm" / "scancel").chmod(0o755)
    (tmp_path / "spool" / "new").mkdir(parents=True)
    return tmp_path


def act(folder: Path) -> None:
    (folder / "spool" / "watch").write_text(f"{int(time.time()) + 600}\n1\n180\n")


def scancel(folder: Path, *words: str, shell: str = "", **more: str) -> tuple[int, str, str]:
    environment = {
        "PATH": f"{folder / 'bin'}:{folder / 'slurm'}:{os.environ['PATH']}",
        "FORESTAY_SHIM_SPOOL": str(folder / "spool"),
        **more,
    }
    command = [shell, str(folder / "bin" / "scancel")] if shell else ["scancel"]
    ran = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, input="y", timeout=60, check=False)  # fmt: skip
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("shell", ["", "bash"])
def test_the_call_is_recorded_before_it_is_made_and_is_the_same(folder: Path, shell: str) -> None:
    act(folder)
    code, out, err = scancel(folder, "-n", "a  b", "12_3", "", shell=shell)
    umask = subprocess.run(["sh", "-c", "umask"], capture_output=True, text=True, check=True).stdout.strip()
    assert (code, out, err) == (3, f"1\n<-n><a  b><12_3><>y{umask}\n", "no such job\n")
    (record,) = (folder / "spool" / "new").iterdir()
    assert record.stat().st_mode & 0o777 == 0o640
    (call,) = ShimSpool(folder / "spool").cancel_calls()
    assert (call.by, call.jobs, call.names) == (os.getuid(), (JobSelector("12", 3, 3),), frozenset({"a  b"}))
    assert abs(call.at - time.time()) < 60


def test_variables_that_act_as_options_are_recorded(folder: Path) -> None:
    act(folder)
    scancel(folder, "--user=bob", SCANCEL_USER="ann", SCANCEL_NAME="x", SCANCEL_STATE="RUNNING")
    (call,) = ShimSpool(folder / "spool").cancel_calls()
    assert [set(values) for values in (call.users, call.names, call.states)] == [{"bob"}, {"x"}, {"RUNNING"}]


@pytest.mark.parametrize("more", [{}, {"FORESTAY_SHIM": "off"}])
def test_without_a_watcher_nothing_is_recorded(folder: Path, more: dict[str, str]) -> None:
    if more:
        act(folder)
    assert scancel(folder, "12", **more)[0] == 3
    assert not list((folder / "spool" / "new").iterdir())


def test_a_record_that_cannot_be_written_keeps_nobody_from_cancelling(folder: Path) -> None:
    act(folder)
    (folder / "spool" / "new").rmdir()
    code, out, err = scancel(folder, "12")
    assert (code, err) == (3, "no such job\n")
    assert "<12>" in out
