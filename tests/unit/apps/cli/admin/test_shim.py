"""The shim as a site installs it; Slurm's own commands are stood in for by programs that say their name."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from tests.unit.apps.cli.conftest import Shell

from forestay.apps.cli.admin.shim import COMMANDS, SPOOL
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.watcher.process import WatcherSettings


@pytest.fixture
def place(forestay: Shell, tmp_path: Path) -> Path:
    """Where it is installed: before Slurm's commands, a fake of them, in PATH."""
    slurm = tmp_path / "slurm"
    slurm.mkdir()
    for name in COMMANDS:
        (slurm / name).write_text(f"#!/bin/sh\necho {name} of Slurm\n")
        (slurm / name).chmod(0o755)
    forestay.environment |= {
        "PATH": f"{tmp_path / 'shim'}:{slurm}:/usr/bin:/bin",
        "FORESTAY_SHIM_SPOOL": str(tmp_path / "spool"),
    }
    return tmp_path / "shim"


def call(forestay: Shell, *words: str) -> str:
    known = {name: value for name, value in forestay.whole().items() if value is not None}
    return subprocess.run(words, env=known, capture_output=True, text=True, check=True).stdout


def test_it_is_installed_seen_and_removed(forestay: Shell, place: Path) -> None:
    assert forestay("shim", "status").code == ExitCode.FAILED
    ended = forestay("shim", "install", str(place))
    assert (ended.code, ended.out) == (ExitCode.OK, "")
    assert f"PATH={place}" in ended.err
    ended = forestay("shim", "status", "--json")
    assert ended.code == ExitCode.OK
    assert ended.json["commands"] == [
        {"name": name, "shim": str(place / name), "slurm": str(place.parent / "slurm" / name), "current": True}
        for name in COMMANDS
    ]
    assert call(forestay, "squeue") == "squeue of Slurm\n"
    assert forestay("shim", "install", str(place)).code == ExitCode.OK, "again, as after an upgrade"
    assert forestay("shim", "remove", str(place)).code == ExitCode.OK
    assert not place.exists()
    assert call(forestay, "squeue") == "squeue of Slurm\n"
    assert forestay("shim", "remove", str(place)).code == ExitCode.NOT_FOUND


def test_an_older_shim_and_one_that_is_bypassed_are_told(forestay: Shell, place: Path) -> None:
    forestay("shim", "install", str(place))
    with (place / "forestay-shim").open("a") as shim:
        shim.write("# of another version\n")
    (place / "sacct").unlink()
    ended = forestay("shim", "status")
    assert ended.code == ExitCode.FAILED
    lines = {line.split()[0]: line for line in ended.out.splitlines()}
    assert "another; install it again" in lines["sbatch"]
    assert lines["sacct"].split()[1:] == ["-", str(place.parent / "slurm" / "sacct"), "-"]


def test_nothing_of_others_is_replaced_or_removed(forestay: Shell, place: Path) -> None:
    slurm = place.parent / "slurm"
    ended = forestay("shim", "install", str(slurm))
    assert ended.code == ExitCode.CONFLICT
    assert "not the shim's" in ended.err
    assert (slurm / "sbatch").read_text() == "#!/bin/sh\necho sbatch of Slurm\n"
    forestay("shim", "install", str(place))
    (place / "README").write_text("of the site")
    assert forestay("shim", "remove", str(place)).code == ExitCode.OK
    assert [path.name for path in place.iterdir()] == ["README"]


def test_whether_a_watcher_acts(forestay: Shell, place: Path) -> None:
    forestay("shim", "install", str(place))
    spool = place.parent / "spool"
    assert "does not exist; no watcher acts" in forestay("shim").out
    (spool / "new").mkdir(parents=True)
    (spool / "new" / "12.0.1").touch()
    (spool / "watch").write_text(f"{int(time.time()) + 60}\n0\n180\n")
    assert "1 job recorded; a watcher acts" in forestay("shim").out
    (spool / "watch").write_text(f"{int(time.time()) - 1}\n0\n180\n")
    assert "has not renewed" in forestay("shim").out


def test_records_go_where_they_shall(forestay: Shell, place: Path, tmp_path: Path) -> None:
    assert forestay("shim", "install", str(place), "--records", str(tmp_path / "records")).code == ExitCode.OK
    assert (place / "records").readlink() == tmp_path / "records"


def test_shim_watcher_and_command_line_have_the_spool_at_the_same_place() -> None:
    """The shim is a shell script, and the command line does not import what a watcher needs."""
    shim = (Path(__file__).parents[5] / "shim" / "forestay-shim").read_text()
    assert f"spool=${{FORESTAY_SHIM_SPOOL:-{SPOOL}}}" in shim
    assert WatcherSettings().spool == SPOOL
