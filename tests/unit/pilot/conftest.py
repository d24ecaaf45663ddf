"""Pilots to test: in this process, or as a process of their own to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer, until

from forestay_pilot.pilot import PilotProcess, PilotSettings
from forestay_pilot.process.payload import Surroundings

SOURCE = Path(__file__).resolve().parents[3] / "src"


class RunningPilot:
    """A pilot in a thread of this process."""

    def __init__(self, settings: PilotSettings) -> None:
        self.pilot = PilotProcess(settings)
        self.exit_code: int | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        self.exit_code = self.pilot.run()

    def end(self) -> int:
        """Drain, stop what runs, and wait for the exit code."""
        self.pilot.on_signal()
        self.pilot.on_signal()
        return self.wait()

    def wait(self) -> int:
        until(lambda: not self._thread.is_alive(), "the pilot's end")
        assert self.exit_code is not None
        return self.exit_code


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.failures = type(fake.failures)()
    fake.stop()


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


@pytest.fixture
def pilot(server: FakeServer, tmp_path: Path, outputs: Path) -> Iterator[Callable[..., RunningPilot]]:
    """Start pilots in this process, each with changes to its settings; they are ended after the test."""
    started: list[RunningPilot] = []
    outputs.mkdir()

    def start(**changes: Any) -> RunningPilot:
        settings: dict[str, Any] = {
            "servers": [server.url],
            "enrol_token": ENROL_TOKEN,
            "outputs": str(outputs),
            "work": str(tmp_path / "work"),
            "host": "node1",
            "resources": {"cpus": 4},
            "claim_wait": 1.0,
            "end_wait": 1.0,
            "surroundings": Surroundings(grace=1.0),
        }
        running = RunningPilot(PilotSettings(**{**settings, **changes}))
        started.append(running)
        return running

    yield start
    for running in started:
        running.end()


@pytest.fixture
def pilot_process(server: FakeServer, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start pilots as processes, as a batch job would."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                sys.executable,
                *("-m", "forestay_pilot", "--server", server.url, "--claim-wait", "1", "--grace", "1"),
                *("--outputs", str(tmp_path / "out"), "--work", str(tmp_path / "work"), *words),
            ],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(SOURCE),
                "FORESTAY_ENROL_TOKEN": ENROL_TOKEN,
                "SECRET_OF_THE_PILOT": "not for payloads",
            },
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
