"""`pip install forestay` for real: the size of what it brings, and every command in it. `just small-install` builds the wheel first."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.unit.apps.test_small_install import judge, run_all

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 60
"""Megabytes that it may add to a new virtual environment."""


def install(folder: Path, wheel: Path) -> Path:
    """The wheel without extras in a new environment, in which every command runs or names its extra."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    programs = folder / "bin"
    before = _megabytes(folder)
    subprocess.run([str(programs / "pip"), "install", "--quiet", "--no-input", str(wheel)], check=True)
    added = _megabytes(folder) - before
    installed = subprocess.run(
        [str(programs / "pip"), "list", "--format=freeze"], check=True, capture_output=True, text=True
    )
    packages = [line for line in installed.stdout.split() if not line.startswith(("pip==", "setuptools=="))]
    sys.stderr.write(f"small install: {added} MB in {len(packages)} packages\n")
    assert added <= LIMIT, f"{added} MB"
    judge(run_all(python=str(programs / "python")))
    deploy = folder.parent / "deploy"
    subprocess.run([str(programs / "forestay"), "deploy", "write", str(deploy)], check=True)
    files = {str(path.relative_to(deploy)) for path in deploy.rglob("*") if path.is_file()}
    listed = subprocess.run(["git", "ls-files", "deploy", "shim"], cwd=ROOT, check=True, capture_output=True, text=True)
    wanted = {
        name.removeprefix("deploy/")
        for name in listed.stdout.split()
        if not name.endswith("/.gitignore")
        and not name.startswith(("deploy/init/", "deploy/packages/", "deploy/conda/"))
    }
    assert files == wanted, files ^ wanted
    for way in sorted((ROOT / "deploy" / "init").iterdir()):
        folder_of_way = folder.parent / way.name
        words = [str(programs / "forestay"), "init", str(folder_of_way), "--for", way.name]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        missing = {file.name for file in way.iterdir()} - {path.name for path in folder_of_way.iterdir()}
        assert not missing, missing
    return programs


def _megabytes(folder: Path) -> int:
    return int(subprocess.run(["du", "-sm", folder], check=True, capture_output=True, text=True).stdout.split()[0])


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)], check=True)
        (wheel,) = folder.glob("forestay-*.whl")
        install(folder / "venv", wheel)


if __name__ == "__main__":
    main()
