"""What the shim passes on: a job gets the environment of its user, so that no variable of the shim's own may replace one of theirs."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

SHIM = Path(__file__).resolve().parents[3] / "shim" / "forestay-shim"
_STAND_IN = """#!/usr/bin/perl
open my $environment, "<", "/proc/self/environ";
open my $seen, ">", $ENV{SEEN};
print {$seen} readline $environment;
print "Submitted batch job 12\\n";
"""
"""No shell, which would drop variables itself."""
OF_A_SHELL = {"_", "OLDPWD", "PWD", "SHLVL"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The shim, installed with a place for records before a Slurm that writes down its environment, beside a file of its owner."""
    (tmp_path / "records").mkdir()
    subprocess.run([SHIM, "--install", tmp_path / "bin", tmp_path / "records"], check=True, stderr=subprocess.PIPE)
    (tmp_path / "slurm").mkdir()
    for name in ("sbatch", "squeue", "sacct", "scontrol"):
        (tmp_path / "slurm" / name).write_text(_STAND_IN)
        (tmp_path / "slurm" / name).chmod(0o755)
    (tmp_path / "slurm" / "precious").touch()
    (tmp_path / "spool" / "new").mkdir(parents=True)
    (tmp_path / "work.sh").write_text("#!/bin/sh\ntrue\n")
    return tmp_path


def prepare(folder: Path, acting: bool, recorded: bool) -> None:
    if acting:
        now = int(time.time())
        (folder / "spool" / "watch").write_text(f"{now + 600}\n{now}.000\n180\n")
    if not recorded:
        (folder / "bin" / "records").unlink()


def users_words() -> dict[str, str]:
    """Every word of the shim as a variable of its user."""
    words = set(re.findall(r"\b[a-z][a-z_]*\b", SHIM.read_text()))
    return {word: f"of the user: {word}" for word in words if not word.startswith("shim_")}


def differing(folder: Path, words: tuple[str, ...], users: dict[str, str]) -> set[str]:
    """The variables that a command has otherwise through the shim."""
    known = users | {
        "PATH": f"{folder / 'slurm'}:{os.environ['PATH']}", "FORESTAY_SHIM_SPOOL": str(folder / "spool"),
        "FORESTAY_REQUEUE": "allow",
    }  # fmt: skip
    seen = {}
    for arm, path in (("bare", known["PATH"]), ("shim", f"{folder / 'bin'}:{known['PATH']}")):
        environment = known | {"PATH": path, "SEEN": str(folder / arm)}
        subprocess.run(
            words, env=environment, cwd=folder, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
        lines = (folder / arm).read_bytes().decode().split("\0")[:-1]
        seen[arm] = dict(line.split("=", 1) for line in lines) | {"PATH": "", "SEEN": ""}
    # A script that is wrapped for a record bears the name that sbatch would give it.
    seen["bare"].setdefault("SBATCH_JOB_NAME", seen["shim"].get("SBATCH_JOB_NAME", ""))
    seen["shim"].setdefault("SBATCH_JOB_NAME", "")
    names = seen["bare"].keys() | seen["shim"].keys()
    return {name for name in names if seen["bare"].get(name) != seen["shim"].get(name)} - OF_A_SHELL


@pytest.mark.parametrize("acting", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        ("sbatch", "work.sh"),
        ("sbatch", "--wait", "work.sh"),
        ("sbatch", "--comment=mine", "--wrap", "true"),
        ("squeue", "-h", "-o", "%i %T"),
        ("scontrol", "show", "job", "12"),
    ],
    ids=" ".join,
)
def test_a_command_gets_every_variable_of_its_user(
    folder: Path, words: tuple[str, ...], acting: bool, recorded: bool
) -> None:
    prepare(folder, acting, recorded)
    assert differing(folder, words, users_words()) == set()
    assert (folder / "slurm" / "precious").exists()


@pytest.mark.parametrize(
    "unusual",
    [
        {"BASH_FUNC_module%%": "() { :; }"},
        {"a.b": "c"},
        {"x-y": "", "quoted": "it's"},
        {"IFS": "\n"},
        {"lines": "a'\nexport b='c", "z.": "1234"},
    ],
    ids=",".join,
)
@pytest.mark.parametrize("recorded", [False, True])
def test_a_job_gets_the_variables_that_no_shell_allows(folder: Path, unusual: dict[str, str], recorded: bool) -> None:
    prepare(folder, recorded, recorded)
    assert differing(folder, ("sbatch", "--wrap", "true"), unusual) == set()


def test_usual_variables_cost_no_process(folder: Path) -> None:
    """The shell knows them all; only for others the job's are read from Linux."""
    prepare(folder, acting=False, recorded=False)
    usual = {"PATH": f"{folder / 'bin'}:{folder / 'slurm'}:{os.environ['PATH']}", "SEEN": str(folder / "seen")}
    usual |= {
        "PWD": str(folder),
        "empty": "",
        "lines": "a\nb",
        "wide": "\u00e9",
        "FORESTAY_SHIM_SPOOL": str(folder / "spool"),
    }
    for more, started in (({}, set()), ({"PWD": "/"}, {"grep"}), ({"a.b": ""}, {"grep", "perl"})):
        traced = subprocess.run(
            ["sh", "-x", folder / "bin" / "sbatch", "--wrap", "true"],
            env=usual | more, cwd=folder, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        assert {name for name in ("grep", "perl") if f"{name} -e" in traced.stderr.lower()} == started, traced.stderr
