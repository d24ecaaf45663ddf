"""DAGs that a real condor_dagman runs on a real HTCondor."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import servers
from tests.speed import clock_limit

HOOK = Path(__file__).parents[3] / "plugins" / "dagman-hook-forestay"
ADD_NEEDS = "include command : find . -maxdepth 1 -name $(JOB).forestay.sub -exec cat {} +"
"""As the page on DAGMan has it."""


class Htcondor:
    """The HTCondor of `scripts/servers`."""

    def __init__(self) -> None:
        self.environment = {**os.environ, "PATH": f"{servers.htcondor()}:{os.environ['PATH']}"}

    def run(self, *command: str, folder: Path | None = None) -> str:
        """One of HTCondor's own commands."""
        done = subprocess.run(
            command, env=self.environment, cwd=folder, text=True, capture_output=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout.strip()


@dataclass(slots=True)
class RealDag:
    """A DAG in a folder of its own."""

    condor: Htcondor
    folder: Path
    name: str = "night.dag"

    def job(self, node: str, program: str, *lines: str) -> None:
        """A node whose program is a Python script; each run leaves a mark."""
        (self.folder / f"{node}.py").write_text(f"open('{node}.runs', 'a').write('x')\n{program}\n")
        (self.folder / f"{node}.sub").write_text(
            "\n".join(
                [
                    "executable = /usr/bin/python3",
                    f"arguments = {node}.py",
                    "should_transfer_files = NO",
                    f"error = {node}.err",
                    *lines,
                    ADD_NEEDS,
                    "queue",
                    "",
                ]
            )
        )

    def write(self, *lines: str) -> None:
        nodes = sorted(path.stem for path in self.folder.glob("*.sub") if "." not in path.stem)
        (self.folder / self.name).write_text("\n".join([*(f"JOB {node} {node}.sub" for node in nodes), *lines]) + "\n")

    def hook(self, *options: str, defer: int = 2) -> list[str]:
        """The lines that put the POST script in; its two files are copied, as to an access point."""
        for part in HOOK.glob("*.py"):
            shutil.copy(part, self.folder)
        script = "/usr/bin/python3 forestay_dagman_post.py $JOB $JOBID $RETURN $RETRY $MAX_RETRIES $DAG_STATUS"
        return [f"SCRIPT DEFER 75 {defer} POST ALL_NODES {script} {' '.join(options)}"]

    def start(self) -> None:
        (self.folder / f"{self.name}.dagman.out").unlink(missing_ok=True)  # a run before this one ended too
        self.condor.run("condor_submit_dag", self.name, folder=self.folder)

    def ended(self) -> int | None:
        """The exit code of condor_dagman."""
        last = self.output().partition("EXITING WITH STATUS ")[2].split()
        return int(last[0]) if last else None

    def output(self) -> str:
        path = self.folder / f"{self.name}.dagman.out"
        return path.read_text() if path.exists() else ""

    def wait(self) -> int:
        deadline = time.monotonic() + clock_limit(180)
        while (code := self.ended()) is None:
            if time.monotonic() > deadline:
                pytest.fail(f"DAGMan is still running:\n{self.output()[-4000:]}")
            time.sleep(0.2)
        return code

    def go(self) -> int:
        self.start()
        return self.wait()

    def runs(self, node: str) -> int:
        marks = self.folder / f"{node}.runs"
        return len(marks.read_text()) if marks.exists() else 0

    def rescues(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob(f"{self.name}.rescue*"))
