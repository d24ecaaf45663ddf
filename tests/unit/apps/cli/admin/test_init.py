"""`forestay init`: what each way needs is written, can be installed, and can be taken out again without a trace."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.unit.apps.cli.conftest import Shell

from forestay.apps.cli.admin.init import Way
from forestay.apps.config.settings import Settings

SERVER = "https://forestay.hall.example"


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def run(folder: Path, script: str, root: Path) -> None:
    """One of the scripts, below a folder, as a package would be installed."""
    program = str(Path(sys.executable).with_name("forestay"))
    done = subprocess.run(
        [folder / script], env=os.environ | {"DESTDIR": str(root), "FORESTAY": program}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("way", list(Way))
def test_nothing_is_left_to_fill_in_but_what_only_the_reader_knows(forestay: Shell, tmp_path: Path, way: Way) -> None:
    folder = tmp_path / "new"
    shown = forestay("init", str(folder), "--for", way.value, "--server", SERVER)
    assert shown.code == 0, shown.err
    assert shown.out.startswith("# "), "the checklist is shown"
    for name in below(folder):
        if not name.startswith("shim/"):
            text = (folder / name).read_text()
            assert not re.search(r"@[A-Z_]+@", text), name
            assert text.startswith("#!") == os.access(folder / name, os.X_OK), name
    assert forestay("init", str(folder), "--for", way.value).code == 5, "a folder with something in it is left alone"


def test_own_jobs_need_nothing_outside_the_folder(forestay: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert forestay("init", str(folder), "--for", "own-jobs", "--act").code == 0
    seen = subprocess.run(
        ["/bin/sh", "-c", f". {folder}/env.sh && command -v sbatch && echo $FORESTAY_SHIM_SPOOL"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert seen.stdout.split() == [str(folder / "shim/sbatch"), str(folder / "spool")]
    assert (folder / "spool/new").is_dir()
    assert f'forestay watcher --spool "{folder}/spool" --act\n' in (folder / "CHECKLIST.md").read_text()


def test_a_login_node_is_installed_and_left_as_it_was(forestay: Shell, tmp_path: Path) -> None:
    folder, root = tmp_path / "login", tmp_path / "root"
    assert forestay("init", str(folder), "--for", "login-node", "--server", SERVER).code == 0
    run(folder, "install", root)
    assert tomllib.loads((root / "etc/forestay/watcher.toml").read_text())["server"] == SERVER
    assert "WATCHER_OPTIONS=\n" in (root / "etc/forestay/watcher.env").read_text(), "it observes only"
    assert (root / "opt/forestay/shim/sbatch").resolve().name == "forestay-shim"
    assert (root / "var/spool/forestay/shim/new").stat().st_mode & 0o7777 == 0o3777
    assert not (root / "etc/profile.d").exists(), "no user is affected yet"
    (root / "etc/forestay/watcher.env").write_text("WATCHER_OPTIONS=--act\n")
    run(folder, "install", root)
    assert (root / "etc/forestay/watcher.env").read_text() == "WATCHER_OPTIONS=--act\n", "what was changed is kept"
    run(folder, "remove", root)
    assert below(root) == {"usr/lib/sysusers.d/forestay.conf"}
    run(folder, "remove", root)


@pytest.mark.parametrize("temporal", ["", "temporal.hall.example:7233"])
def test_a_site_is_installed_and_left_as_it_was(forestay: Shell, tmp_path: Path, temporal: str) -> None:
    folder, root = tmp_path / "site", tmp_path / "root"
    words = ["init", str(folder), "--for", "site", "--server", SERVER, *(["--temporal", temporal] if temporal else [])]
    assert forestay(*words).code == 0
    run(folder, "install", root)
    settings = Settings.model_validate(tomllib.loads((root / "etc/forestay/forestay.toml").read_text()))
    assert settings.url == SERVER
    assert (settings.temporal or "") == temporal
    checklist = (folder / "CHECKLIST.md").read_text()
    assert ("forestay-orchestrator\n" in checklist) == bool(temporal)
    assert {path.name for path in (root / "etc/systemd/system").iterdir()} >= {"forestay-server.service"}
    run(folder, "remove", root)
    assert below(root) == set()


def test_what_shells_would_read_is_refused(forestay: Shell, tmp_path: Path) -> None:
    for words in (
        (str(tmp_path / "two words"), "--for", "own-jobs"),
        (str(tmp_path / "a"), "--for", "login-node", "--server", 'https://x"$(id)'),
        (str(tmp_path / "b"), "--for", "site", "--temporal", "x; id"),
        (str(tmp_path / "c"),),
    ):
        assert forestay("init", *words).code == 2, words
    assert list(tmp_path.glob("[abct]*")) == []


def test_on_a_terminal_three_questions_are_asked(forestay: Shell, tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    program = str(Path(sys.executable).with_name("forestay"))
    environment = {name: value for name, value in forestay.whole().items() if value is not None}
    os.write(master, f"9\n2\n{SERVER}\ny\n".encode())
    done = subprocess.run(
        [program, "init", str(tmp_path / "asked")], stdin=terminal, env=os.environ | environment, capture_output=True, text=True
    )  # fmt: skip
    os.close(master)
    os.close(terminal)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("What do you want to do") == 2, "9 is none of them"
    assert f'server = "{SERVER}"' in (tmp_path / "asked/watcher.toml").read_text()
    assert "--act" in (tmp_path / "asked/watcher.env").read_text()
