"""The release before this one, as its wheel in an environment of its own: built once from its commit, and kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers import versions

ROOT = Path(__file__).parents[3]


def previous_commit() -> str:
    """The commit that stands for the release before, as scripts/versions.env says."""
    return versions()["UPGRADE_FROM"]


def previous_python() -> str:
    """The interpreter of an environment with that release in it."""
    commit = previous_commit()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "forestay" / "upgrade" / commit
    python = cache / "bin" / "python"
    if not python.exists():
        with TemporaryDirectory(prefix="forestay-upgrade-") as folder:
            _build(commit, Path(folder), cache)
    return str(python)


def _build(commit: str, folder: Path, target: Path) -> None:
    uv = shutil.which("uv") or "uv"
    source, made = folder / "source", folder / "made"
    subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", source, commit], check=True, capture_output=True)
    try:
        subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", made, source], check=True)
        locked = folder / "locked.txt"
        subprocess.run(
            [
                uv,
                "export",
                "--quiet",
                "--frozen",
                "--no-dev",
                "--all-extras",
                "--no-emit-workspace",
                "--project",
                source,
                "-o",
                locked,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        environment = target.with_name(f"{target.name}.{os.getpid()}")
        subprocess.run([uv, "venv", "--quiet", "--relocatable", environment], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", str(environment / "bin" / "python")]
        subprocess.run([*install, "--require-hashes", "-r", str(locked)], check=True)
        subprocess.run([*install, "--no-deps", *map(str, made.glob("*.whl"))], check=True)
        # A rename is the last step, so that half an environment is never taken for one.
        environment.rename(target)
    finally:
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", source], check=True, capture_output=True)
