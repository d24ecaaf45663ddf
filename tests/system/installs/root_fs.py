"""A bare Debian in which a test may do what it likes: a root file system over one that is never written to, with processes of its own.

`scripts/servers install roots` fetches them, as root. All of it is in namespaces of one process that reads from this one: when the test ends, however it ends,
mounts and processes are gone. The network is this machine's.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.servers import SCRIPT, installed

PLACE = "/tmp"  # noqa: S108 - of the root file system, and no file of this machine
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOUNTS = """
set -e
mount --make-rprivate /
mkdir -p "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=$0,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t sysfs -o ro sysfs "$1/root/sys"
mount -t tmpfs tmpfs "$1/root/tmp"
chmod 1777 "$1/root/tmp"
cp /etc/resolv.conf /etc/hosts "$1/root/etc/"
echo mounted
exec cat
"""


def bare_root(suite: str) -> Path:
    """The root file system that `scripts/servers install roots` has fetched."""
    folder = installed(f"bare-{suite}", "usr/bin/apt-get")
    if folder is None or os.getuid() != 0:
        pytest.fail(f"wants root, and a bare Debian: {SCRIPT} install roots", pytrace=False)
    return folder


class Failed(AssertionError):
    """A command inside did not end with 0."""


class RootFs:
    """A bare Debian of one test; commands are run in it as root, or as one of its users."""

    def __init__(self, suite: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder / "root"
        words = ["unshare", "-m", "-p", "-f", "--kill-child", "sh", "-c", MOUNTS, str(bare_root(suite)), str(folder)]
        self._holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"mounted\n", "a root file system could not be mounted"
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        self._first = children[0]
        self.typed: list[tuple[str, float]] = []
        """What was typed as an installation, with its seconds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._holder as holder:  # closes its pipes, by which it ends
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait(60)

    def words(self, *command: str, user: str = "root", environment: Mapping[str, str] | None = None) -> list[str]:
        """What runs a command inside, for `subprocess`."""
        values = {"PATH": PATH, "HOME": "/root" if user == "root" else PLACE, "LANG": "C.UTF-8"} | dict(
            environment or {}
        )
        entered = [
            "nsenter",
            "-t",
            self._first,
            "-m",
            "-p",
            "--",
            "chroot",
            str(self.folder),
            "env",
            "-i",
            "-C",
            PLACE,
        ]
        entered += [f"{name}={value}" for name, value in values.items()]
        if user != "root":
            entered += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return [*entered, *command]

    def run(self, text: str, *, user: str = "root", environment: Mapping[str, str] | None = None, code: int = 0) -> str:
        """Type a line, and get what it shows."""
        done = subprocess.run(
            self.words("sh", "-c", text, user=user, environment=environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1800,
            check=False,
        )
        if done.returncode != code:
            raise Failed(f"{text}\nended with {done.returncode}:\n{done.stdout[-4000:]}")
        return done.stdout

    def install(self, *lines: str) -> None:
        """Type lines of an installation, each with its time."""
        for line in lines:
            began = time.monotonic()
            self.run(line, environment={"DEBIAN_FRONTEND": "noninteractive"})
            self.typed.append((line, time.monotonic() - began))
            sys.stderr.write(f"{self.typed[-1][1]:6.1f} s  {line}\n")

    def start(
        self, name: str, text: str, *, user: str = "root", environment: Mapping[str, str] | None = None
    ) -> Daemon:
        """Start a process that stays, its messages in a file of /tmp."""
        line = f"echo $$ >/tmp/{name}.pid; exec >/tmp/{name}.log 2>&1; {text}"
        process = subprocess.Popen(
            self.words("sh", "-c", line, user=user, environment=environment), stdin=subprocess.DEVNULL
        )
        return Daemon(self, name, process)

    def mount(self, path: Path, inside: str) -> None:
        """Show a file of this machine inside, read-only."""
        place = shlex.quote(f"{self.folder}{inside}")
        make = f"mkdir -p {place}" if path.is_dir() else f"mkdir -p $(dirname {place}) && touch {place}"
        words = ["nsenter", "-t", self._first, "-m", "--", "sh", "-c"]
        subprocess.run([*words, f"{make} && mount --bind -o ro {shlex.quote(str(path))} {place}"], check=True)

    def text(self, inside: str) -> str:
        return self.run(f"cat {shlex.quote(inside)}")

    def files(self) -> set[str]:
        """Every file and folder, but what is mounted."""
        return set(self.run("find / -xdev").split("\n"))


class Daemon:
    """A process that was started inside."""

    def __init__(self, root: RootFs, name: str, process: subprocess.Popen[bytes]) -> None:
        self.root, self.name, self.process = root, name, process

    def log(self) -> str:
        return self.root.run(f"cat /tmp/{self.name}.log 2>/dev/null; true")

    def wait_for(self, words: str, seconds: float = 300) -> None:
        """Until its messages have these words."""
        until = time.monotonic() + seconds
        while words not in self.log():
            assert self.process.poll() is None, f"{self.name} ended: {self.log()}"
            assert time.monotonic() < until, f"{self.name} does not say {words!r}: {self.log()}"
            time.sleep(0.2)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it as systemd does, and get its exit code."""
        self.root.run(f"kill -{number.value} $(cat /tmp/{self.name}.pid)")
        return self.process.wait(200)
