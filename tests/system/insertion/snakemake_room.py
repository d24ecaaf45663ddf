"""The real Snakemake with our executor plugin, both as wheels in an environment of their own; and flows that it runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.system.insertion.shell import ROOT, VERSIONS

from forestay.adapters.private_file import write_private

PLUGIN = ROOT / "plugins" / "snakemake-executor-plugin-forestay"
SNAKEFILE = ROOT / "tests" / "system" / "insertion" / "Snakefile"


@pytest.fixture(scope="session")
def snakemake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, as a user has it who installs both packages beside Snakemake."""
    place = tmp_path_factory.mktemp("snakemake")
    for source in (ROOT, PLUGIN):
        _call("uv", "build", "--quiet", "--wheel", "--out-dir", str(place / "wheels"), str(source))
    python = str(place / "env" / "bin" / "python")
    _call("uv", "venv", "--quiet", str(place / "env"))
    wheels = [
        f"{path}[server,flows]" if path.name.startswith("forestay-") else str(path)
        for path in (place / "wheels").glob("*.whl")
    ]
    wanted = f"snakemake=={VERSIONS['SNAKEMAKE_VERSION']}"
    _call("uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", python, wanted, *wheels)
    return place / "env" / "bin" / "snakemake"


def _call(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@dataclass(eq=False)
class FlowRun:
    """One run of Snakemake."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def kill(self) -> None:
        """kill -9 of Snakemake and what it started itself: its machine is gone."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def ended(self, seconds: float = 240) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not ended after {seconds:g} s:\n{self.said[-4000:]}")


@dataclass(eq=False)
class FlowFolder:
    """A folder with a flow, as its user has it."""

    program: Path
    folder: Path
    server: str
    token: str
    variables: dict[str, str] = field(default_factory=dict)
    runs: list[FlowRun] = field(default_factory=list)

    def holds(self, text: str | None = None) -> None:
        """The flow: this text, or the Snakefile that every way of running is tried with."""
        if text is None:
            shutil.copy(SNAKEFILE, self.folder / "Snakefile")
        else:
            (self.folder / "Snakefile").write_text(text)

    def calls(self, text: str) -> None:
        """What the Snakefile calls: a program of the user's, on the path of Snakemake."""
        place = self.folder / "bin" / "measure"
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
        place.chmod(0o755)

    def start(self, *more: str, variables: Mapping[str, str] | None = None) -> FlowRun:
        """Without a single retry of the user's. What is said goes to a file, as in a batch job."""
        write_private(self.folder / "token", self.token)
        words = [
            str(self.program), "--executor", "forestay", "--jobs", "4", "--retries", "0", "--latency-wait", "10",
            "--seconds-between-status-checks", "1", *more,
        ]  # fmt: skip
        fields = {
            "SNAKEMAKE_FORESTAY_SERVER": self.server,
            "SNAKEMAKE_FORESTAY_TOKEN_FILE": str(self.folder / "token"),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
        log = self.folder / f"run-{len(self.runs)}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                env=kept | fields | self.variables | dict(variables or {}),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        run = FlowRun(process, log)
        self.runs.append(run)
        return run

    def run(self, *more: str) -> FlowRun:
        """To its end."""
        run = self.start(*more)
        run.ended()
        return run

    def unlock(self) -> None:
        """As Snakemake asks for it after it was killed."""
        words = [str(self.program), "--unlock", "--cores", "1"]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        for run in self.runs:
            if run.process.poll() is None:
                run.kill()

    def well(self, run: FlowRun, *parts: str) -> None:
        """It ended well, its result is whole, and nothing was told of any failure."""
        assert run.process.returncode == 0, run.said[-4000:]
        assert sorted((self.folder / "out" / "merged.txt").read_text().split()) == sorted(parts or ("1", "2"))
        assert "Error in rule" not in run.said


def wait_for_line(path: Path, wanted: str, seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not (path.exists() and wanted in path.read_text()):
        assert time.monotonic() < give_up, f"waited {seconds:g} s in vain for {wanted!r} in {path.name}"
        time.sleep(0.05)
