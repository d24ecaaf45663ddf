"""Our end of a peer: another system, installed into an environment of its own that uv keeps, told in lines of JSON what to do.

Nothing of a peer is ever installed beside Forestay. All its processes bear a mark in their environment, by which their processor time is added up, however they were
started, and by which none of them outlives the benchmark.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from bench.harness import cpu_seconds

ROOT = Path(__file__).parents[2]
VERSIONS = dict(
    line.split("=", 1)
    for line in (ROOT / "scripts" / "versions.env").read_text().splitlines()
    if "=" in line and not line.startswith("#")
)
WANTED = {
    "parsl": [f"parsl=={VERSIONS['PARSL_VERSION']}"],
    "dask": [f"distributed=={VERSIONS['DASK_VERSION']}"],
    "celery": [f"celery[redis]=={VERSIONS['CELERY_VERSION']}"],
    "dbos": [f"dbos=={VERSIONS['DBOS_VERSION']}"],
    "celpy": [f"cel-python=={VERSIONS['CEL_PYTHON_VERSION']}"],
    "snakemake": [f"snakemake=={VERSIONS['SNAKEMAKE_VERSION']}"],
}
MARK = "FORESTAY_BENCH_PEER"


class TooLong(Exception):
    """The peer did not answer in the time it was given."""


def environment_of(name: str) -> list[str]:
    """The words before a command that run it in a peer's environment."""
    words = ["uv", "run", "--quiet", "--isolated", "--no-project", "--python", sys.executable]
    return [*words, *(word for value in WANTED[name] for word in ("--with", value))]


def installed(name: str, folder: Path) -> Path:
    """The commands of a peer, installed into a folder: whoever times a command must not time uv."""
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run(["uv", "pip", "install", "--quiet", "--python", str(python), *WANTED[name]], check=True)
    return folder / "bin"


class Peer:
    """A module of this package that runs in a peer's environment, and answers."""

    def __init__(self, name: str, module: str, *words: str) -> None:
        self.name = name
        self.mark = f"{name}-{uuid4().hex}"
        self._log = tempfile.NamedTemporaryFile(prefix=f"forestay-{name}-", suffix=".log", delete=False)  # noqa: SIM115
        environment = {entry: value for entry, value in os.environ.items() if entry != "VIRTUAL_ENV"}
        environment |= {"PYTHONPATH": str(ROOT), MARK: self.mark}
        self._process = subprocess.Popen(
            [*environment_of(name), "python", "-m", f"bench.peers.{module}", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment, start_new_session=True, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, verb: str, *values: object, within: float = 600.0) -> Any:
        """Have it do one thing; what it says of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([verb, *values]) + "\n")
        self._process.stdin.flush()
        return self.answer(within)

    def answer(self, within: float) -> Any:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], within)[0]:
            raise TooLong(f"{self.name} took longer than {within:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} is gone; its log is {self._log.name}")
        document = json.loads(line)
        if "error" in document:
            raise SystemExit(f"{self.name}: {document['error']}; its log is {self._log.name}")
        return document["value"]

    def processes(self) -> list[int]:
        """Everything that runs for this peer, whoever its parent is by now."""
        sought = f"{MARK}={self.mark}".encode()
        names = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if sought in (entry / "environ").read_bytes().split(b"\0"):
                        names.append(int(entry.name))
        return names

    def cpu(self) -> float:
        """Processor time of everything that still runs for it, and of what those have waited for."""
        total = 0.0
        for process in self.processes():
            with contextlib.suppress(OSError):
                total += cpu_seconds(process)
        return total

    def stop(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        give_up = time.monotonic() + 20
        while (left := self.processes()) and time.monotonic() < give_up:
            for number in left:
                with contextlib.suppress(OSError):
                    os.kill(number, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.1)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
        if self._process.returncode == 0:
            Path(self._log.name).unlink(missing_ok=True)
