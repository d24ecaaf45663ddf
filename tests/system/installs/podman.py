"""Images that are built and started without a registry and without a Docker engine: buildah and Podman, with a store of their own in a folder.

What `deploy/Containerfile` pins by digest cannot be fetched where there is no registry; its layers are put on a local base then, which is a bare Debian with its
own Python 3.11.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.system.installs.root_fs import bare_root

ROOT = Path(__file__).resolve().parents[3]
BASE = "localhost/python:3.11-slim-bookworm"
IMAGE = "localhost/forestay:0.1.0"
CERTIFICATES = "/etc/ssl/certs"
LIMITS = ["--ulimit", "nofile=20000:20000", "--ulimit", "nproc=5000:5000"]
"""A machine may allow a process no more than this, whatever an engine asks for."""
MAKE_BASE = """
set -e
mount --make-rprivate /
mkdir -p "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=$0,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp /etc/resolv.conf "$1/root/etc/"
chroot "$1/root" env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends python3 python3-pip python3-venv ca-certificates && apt-get clean' >"$1/log" 2>&1
ln -sf python3 "$1/root/usr/bin/python"
rm -rf "$1/root/etc/resolv.conf" "$1/root/var/lib/apt/lists"/*
shift
"$@" copy -q "$CONTAINER" "$FOLDER/root" /
"""


class Podman:
    """A store of images and containers in a folder; everything in it is gone in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        # Podman takes no longer path than 50 characters for it.
        self._running = Path(tempfile.mkdtemp(prefix="podman-"))
        places = ["--root", str(folder / "store"), "--runroot", str(self._running), "--storage-driver", "overlay"]
        self.buildah = ["buildah", *places]
        self.podman = ["podman", *places, "--runtime", "runc", "--cgroup-manager", "cgroupfs"]
        self.typed: list[tuple[str, float]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for words in (["rm", "--all", "--force", "--time", "5"], ["rmi", "--all", "--force"]):
            subprocess.run([*self.podman, *words], check=False, capture_output=True)
        subprocess.run([*self.buildah, "rm", "--all"], check=False, capture_output=True)
        for place in (self.folder, self._running):
            shutil.rmtree(place, ignore_errors=True)

    def make_base(self) -> None:
        """A bare Debian with its Python, and this machine's certificates for the time of the build."""
        container = self._build("from", "scratch").strip()
        words = ["unshare", "-m", "sh", "-c", MAKE_BASE, str(bare_root("bookworm")), str(self.folder), *self.buildah]
        # The first word behind the script is its $0, and the folder its $1.
        environment = os.environ | {"CONTAINER": container, "FOLDER": str(self.folder)}
        subprocess.run(words, check=True, env=environment)
        # What the image of the same name does: pip may install where it is.
        self._build(
            "config",
            "--env",
            "PIP_BREAK_SYSTEM_PACKAGES=1",
            "--env",
            f"SSL_CERT_FILE={CERTIFICATES}/ca-certificates.crt",
            container,
        )
        self._build("commit", "-q", container, BASE)
        self._build("rm", container)

    def build(self, source: Path) -> None:
        """`docker build` as the page on installation has it, on the local base; the wheel is in `dist` of the source folder."""
        began = time.monotonic()
        options = [
            "--isolation",
            "chroot",
            "--network",
            "host",
            "--build-arg",
            f"BASE={BASE}",
            "-v",
            f"{CERTIFICATES}:{CERTIFICATES}:ro",
        ]
        self._build("bud", "-q", *options, "-f", str(source / "deploy/Containerfile"), "-t", IMAGE, str(source))
        self.typed.append((f"docker build -f deploy/Containerfile -t {IMAGE} .", time.monotonic() - began))

    def run(self, *words: str, code: int = 0) -> str:
        """A command of podman, and what it shows."""
        done = subprocess.run(
            [*self.podman, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"podman {' '.join(words)}: {done.returncode}\n{done.stdout[-4000:]}"
        return done.stdout

    def start(self, name: str, options: list[str], *command: str) -> None:
        """A container that stays, closed as compose.yaml closes its services."""
        closed = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges"]  # noqa: S108
        self.run("run", "--detach", "--name", name, "--network", "host", *LIMITS, *closed, *options, IMAGE, *command)

    def wait_until_healthy(self, name: str, seconds: float = 300) -> None:
        """By the container's own check, which an engine would ask every few seconds."""
        until = time.monotonic() + seconds
        while (
            subprocess.run([*self.podman, "healthcheck", "run", name], check=False, capture_output=True).returncode != 0
        ):
            assert self.run("inspect", "--format", "{{.State.Running}}", name).strip() == "true", self.run("logs", name)
            assert time.monotonic() < until, self.run("logs", name)
            time.sleep(0.5)

    def base_archive(self, folder: Path) -> Path:
        """The local base as one file, for other tools that build images."""
        place = folder / "base.tar"
        self._build("push", "-q", BASE, f"oci-archive:{place}")
        return place

    def _build(self, *words: str) -> str:
        done = subprocess.run(
            [*self.buildah, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.stderr.write(done.stderr[-4000:])
            raise AssertionError(f"buildah {words[0]} failed")
        return done.stdout


def source_folder(folder: Path, wheel: Path) -> Path:
    """What a build of the image reads: the last commit, with the wheel in `dist`."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    (folder / "dist").mkdir()
    shutil.copy(wheel, folder / "dist")
    return folder
