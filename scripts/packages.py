"""The packages for Debian and for distributions with rpm: `packages.py [TARGET…]` builds them into dist/packages with nfpm.

Two packages for each target: `forestay` (what `forestay[site]` is) and `forestay-server` (what servers, flows, S3, OpenTelemetry and rules need in addition).
Both put files into one Python environment, /opt/forestay, which uses the target's own interpreter. What is in it is what uv.lock pins, by digest; wheels for
the target's Python are fetched, so that neither that Python nor that distribution is needed here. Files carry the time of the last commit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
ENVIRONMENT = Path("opt/forestay")
SMALL = ("site",)
WHOLE = ("flows", "otel", "rules", "s3", "server", "site")
SERVERS = ("forestay-server.service", "forestay-reconciler.service", "forestay-orchestrator.service")
PLATFORM = "x86_64-manylinux_2_28"
EXAMPLE = "https://forestay.example.org"
NOT_SHIPPED = ("direct_url.json", "uv_cache.json", "REQUESTED", "RECORD")
"""What an installer notes about itself: where the files came from, which is another place each time, and a list of them, which the package has."""


class Target(NamedTuple):
    """A distribution, by the interpreter that it has."""

    kind: str
    release: str
    python: str

    @property
    def package(self) -> str:
        """The name of the interpreter's package, and of the interpreter."""
        return f"python{self.python}"


TARGETS = {
    "debian12": Target("deb", "1~deb12", "3.11"),
    "debian13": Target("deb", "1~deb13", "3.13"),
    "el9": Target("rpm", "1.el9", "3.11"),
}


def version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def commit_time() -> str:
    words = ["git", "log", "-1", "--format=%ct"]
    return os.environ.get("SOURCE_DATE_EPOCH") or subprocess.check_output(words, cwd=ROOT, text=True).strip()


def build_wheel(folder: Path) -> Path:
    environment = os.environ | {"SOURCE_DATE_EPOCH": commit_time()}
    subprocess.run(["uv", "build", "-q", "--wheel", "--out-dir", folder, ROOT], check=True, env=environment)
    (wheel,) = folder.glob("forestay-*.whl")
    return wheel


def install(folder: Path, wheel: Path, target: Target, extras: tuple[str, ...], requirements: Path) -> None:
    """What the lock file pins for these extras, and the wheel, as they are on the target's Python."""
    chosen = [word for extra in extras for word in ("--extra", extra)]
    export = [
        "uv",
        "export",
        "-q",
        "--locked",
        "--no-dev",
        "--no-emit-workspace",
        "--format",
        "requirements-txt",
        *chosen,
    ]
    subprocess.run([*export, "-o", requirements], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    into: list[str | Path] = [
        "uv",
        "pip",
        "install",
        "-q",
        "--target",
        folder,
        "--python-version",
        target.python,
        "--python-platform",
        PLATFORM,
    ]
    into += ["--only-binary", ":all:", "--no-deps", "--no-compile-bytecode", "--link-mode", "copy"]
    subprocess.run([*into, "--require-hashes", "-r", requirements], check=True, cwd=ROOT)
    subprocess.run([*into, wheel], check=True, cwd=ROOT)
    # Commands of other packages, with the path of this folder in their first line.
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for path in folder.rglob("*"):
        if (path.name in NOT_SHIPPED and path.parent.name.endswith(".dist-info")) or path.name == ".lock":
            path.unlink()


def make_environment(folder: Path, target: Target) -> None:
    """What makes a folder an environment of the target's interpreter, with our commands; and the shim."""
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {target.python}\n"
    )
    (folder / "bin/python").symlink_to(f"/usr/bin/{target.package}")
    for name in ("python3", target.package):
        (folder / "bin" / name).symlink_to("python")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, entry in scripts.items():
        module, _, function = entry.partition(":")
        program = folder / "bin" / name
        # -I: a user's PYTHONPATH, as modules of clusters set it, is for another Python.
        program.write_text(
            f"#!/opt/forestay/bin/python -I\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
        )
        program.chmod(0o755)
    subprocess.run(
        ["/bin/sh", ROOT / "shim/forestay-shim", "--install", folder / "shim"], check=True, stderr=subprocess.DEVNULL
    )


def remove_shared(folder: Path, other: Path) -> None:
    """Remove what the other folder has too; nothing may be in both that is not the same."""
    for path in sorted(folder.rglob("*"), reverse=True):
        twin = other / path.relative_to(folder)
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif twin.exists():
            if path.read_bytes() != twin.read_bytes():
                raise SystemExit(f"{path.relative_to(folder)} is in both packages and differs")
            path.unlink()


def fill(template: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    target.write_text(template.read_text().replace("@SERVER@", EXAMPLE).replace("@OPTIONS@", ""))


def prepare(folder: Path, wheel: Path, target: Target) -> None:
    """The two folders of what the packages contain, each file with the time of the commit and one of two modes."""
    small, server = folder / "forestay", folder / "forestay-server"
    libraries = ENVIRONMENT / "lib" / target.package / "site-packages"
    make_environment(small / ENVIRONMENT, target)
    install(small / libraries, wheel, target, SMALL, folder / "small.txt")
    install(server / libraries, wheel, target, WHOLE, folder / "whole.txt")
    remove_shared(server / libraries, small / libraries)
    for name in ("watcher.toml", "watcher.env"):
        fill(DEPLOY / "init/login-node" / name, small / "etc" / name)
    for unit in (DEPLOY / "systemd").glob("*.service"):
        place = (server if unit.name in SERVERS else small) / "systemd"
        place.mkdir(exist_ok=True)
        shutil.copyfile(unit, place / unit.name)
    when = int(commit_time())
    for stage in (small, server):
        (stage / "copyright").write_text(f"{(ROOT / 'NOTICE').read_text()}\n{(ROOT / 'LICENSE').read_text()}")
        for path in (stage, *stage.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            os.utime(path, (when, when), follow_symlinks=False)


def pack(stage: Path, target: Target, nfpm: str, into: Path) -> None:
    """rpm notes the name of the machine: it is packed on one called `localhost`, in a namespace of its own."""
    environment = os.environ | {
        "VERSION": version(),
        "RELEASE": target.release,
        "PYTHON": target.package,
        "STAGE": str(stage),
        "SOURCE_DATE_EPOCH": commit_time(),
        "PROGRAM": nfpm,
        "INTO": str(into),
    }
    alone = ["unshare", "--uts", *([] if os.getuid() == 0 else ["--map-root-user"]), "sh", "-c"]
    words = 'hostname localhost && exec "$PROGRAM" package --config "$0" --packager "$1" --target "$INTO"'
    config = str(DEPLOY / "packages" / f"{stage.name}.yaml")
    subprocess.run(
        [*alone, words, config, target.kind], check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    )


def build(names: list[str], into: Path, wheel: Path | None = None) -> list[Path]:
    """The packages of these targets, in a folder; the wheel is built unless it is given."""
    into.mkdir(parents=True, exist_ok=True)
    before = set(into.iterdir())
    nfpm = subprocess.check_output([ROOT / "scripts/servers", "program", "nfpm"], text=True).strip()
    with tempfile.TemporaryDirectory() as name:
        wheel = wheel or build_wheel(Path(name) / "dist")
        for target in names:
            folder = Path(name) / target
            folder.mkdir()
            prepare(folder, wheel, TARGETS[target])
            for stage in (folder / "forestay", folder / "forestay-server"):
                pack(stage, TARGETS[target], nfpm, into)
            shutil.rmtree(folder)
    return sorted(set(into.iterdir()) - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument(
        "--into", type=Path, default=ROOT / "dist/packages", metavar="FOLDER", help="where the packages go"
    )
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="a wheel that is built already")
    given = parser.parse_args()
    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"unknown target: {', '.join(sorted(unknown))}")
    shutil.rmtree(given.into, ignore_errors=True)
    for path in build(given.targets or list(TARGETS), given.into, given.wheel and given.wheel.absolute()):
        sys.stdout.write(f"{path} ({path.stat().st_size / 1e6:.0f} MB)\n")


if __name__ == "__main__":
    main()
