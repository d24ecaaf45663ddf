"""Two builds of one commit have equal digests: source package and wheel, in two folders, with the time of the commit as SOURCE_DATE_EPOCH.

`just equal-builds`. What is built is what is committed. The wheel is built from the source package, as an index's user would.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
IN_WHEEL = ("forestay/deploy/compose/compose.yaml", "forestay/deploy/systemd/forestay-server.service", "forestay/packs/base/memory.yaml", "forestay/shim/forestay-shim")  # fmt: skip


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def build(commit: str, folder: Path) -> dict[str, str]:
    """The digest of each file of a build in a folder of its own."""
    source = folder / "source"
    source.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(source)], input=git("archive", commit), check=True)
    environment = os.environ | {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct", commit).decode().strip()}
    subprocess.run(
        ["uv", "build", "--quiet", "--out-dir", str(folder / "dist"), str(source)], check=True, env=environment
    )
    files = sorted(path for path in (folder / "dist").iterdir() if path.suffix in (".gz", ".whl"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def check_contents(dist: Path) -> None:
    """What a user needs is in both."""
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= set(IN_WHEEL), sorted(set(IN_WHEEL) - names)
    assert any(name.startswith("forestay/apps/server/pages/static/") for name in names)
    assert not [name for name in names if name.endswith(("postgres_password", "temporal.env"))]
    with tarfile.open(source) as archive:
        inside = archive.getnames()
    assert any(name.endswith("/deploy/compose/compose.yaml") for name in inside)


def main() -> None:
    with tempfile.TemporaryDirectory() as first_folder, tempfile.TemporaryDirectory() as second_folder:
        commit = git("rev-parse", "HEAD").decode().strip()
        first, second = build(commit, Path(first_folder) / "a"), build(commit, Path(second_folder) / "a-longer-name")
        for name, digest in first.items():
            sys.stdout.write(f"{digest}  {name}\n")
        check_contents(Path(first_folder) / "a" / "dist")
        assert len(first) == 2
        assert first == second, second


if __name__ == "__main__":
    main()
