"""`forestay deploy write`: the files of deploy/ and the shim, as they are in git, and nothing beside them."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

from tests.unit.apps.cli.conftest import Shell

from forestay.apps.cli.admin.deploy import _files

ROOT = Path(__file__).parents[5]


def in_git() -> dict[str, bytes]:
    listed = subprocess.run(["git", "ls-files", "deploy", "shim"], cwd=ROOT, check=True, capture_output=True, text=True)
    # The templates of `forestay init` are written by that; packages and recipes are made in the source folder.
    left = ("deploy/init/", "deploy/packages/", "deploy/conda/")
    names = [name for name in listed.stdout.split() if not name.endswith("/.gitignore") and not name.startswith(left)]
    return {name.removeprefix("deploy/"): (ROOT / name).read_bytes() for name in names}


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_files_are_written_and_programs_can_be_run(forestay: Shell, tmp_path: Path) -> None:
    ended = forestay("deploy", "write", str(tmp_path / "out"))
    assert ended.code == 0, ended.err
    assert written(tmp_path / "out") == in_git()
    assert (tmp_path / "out/shim/forestay-shim").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out/systemd/forestay-server.service").stat().st_mode & 0o777 == 0o644
    assert forestay("deploy", "write", str(tmp_path / "out")).code == 0


def test_what_an_installation_compiled_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"")
    (tmp_path / "a.py").write_bytes(b"")
    assert [str(path) for path, _ in _files(tmp_path, PurePosixPath("launcher"))] == ["launcher/a.py"]


def test_one_part(forestay: Shell, tmp_path: Path) -> None:
    listed = forestay("deploy", "write", "--json", "--part", "compose", str(tmp_path)).json
    assert listed["files"] == ["compose/compose.yaml"]
    assert list(written(tmp_path)) == ["compose/compose.yaml"]
    assert forestay("deploy", "write", "--part", "floppy", str(tmp_path)).code == 2


def test_what_somebody_changed_is_kept(forestay: Shell, tmp_path: Path) -> None:
    (tmp_path / "compose").mkdir()
    (tmp_path / "compose/compose.yaml").write_text("mine\n")
    ended = forestay("deploy", "write", str(tmp_path))
    assert ended.code == 5
    assert "is different" in ended.err
    assert list(written(tmp_path)) == ["compose/compose.yaml"]
    assert (tmp_path / "compose/compose.yaml").read_text() == "mine\n"
