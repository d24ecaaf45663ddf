"""The command line, run in this process or in one of its own, against a fake of the interface."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apps.cli.fake_api import TOKEN, FakeApi
from typer.testing import CliRunner

from forestay.apps.cli import app, session
from forestay.client.api import waiting


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi().serving() as fake:
        yield fake


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Shell:
    """Runs `forestay` with an environment of its own."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, stdin: str | bytes | None = None) -> Ended:
        """In this process; stdin, stdout and stderr are no terminals."""
        ended = CliRunner().invoke(app, words, input=stdin, env=self.whole())
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return Ended(ended.exit_code, ended.stdout_bytes.decode(), ended.stderr_bytes.decode())

    def whole(self) -> dict[str, str | None]:
        cleared: dict[str, str | None] = {name: None for name in os.environ if name.startswith("FORESTAY_")}
        cleared |= dict.fromkeys(("NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "FORCE_COLOR", "COLUMNS"))
        return cleared | self.environment

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """In a process of its own."""
        environment = {name: value for name, value in os.environ.items() if name not in self.whole()}
        environment |= {name: value for name, value in self.whole().items() if value is not None}
        command = [sys.executable, "-m", "forestay.apps.cli", *words]
        # Who runs the tests in the background may have turned Ctrl-C off for all that they start.
        on = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        return subprocess.Popen(command, env=environment, cwd=self.home, preexec_fn=on, **options)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that only spare a server are short here."""
    monkeypatch.setattr(waiting, "ASK_EVERY_WITHOUT_STREAM", 0.02)
    monkeypatch.setattr(session, "REOPEN_AFTER", 0.0)


@pytest.fixture
def lonely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell whose user has set nothing."""
    monkeypatch.chdir(tmp_path)
    places = {"HOME": "", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_CONFIG_DIRS": "system"}
    return Shell(tmp_path, {name: str(tmp_path / place) for name, place in places.items()})


@pytest.fixture
def forestay(lonely: Shell, api: FakeApi) -> Shell:
    """A shell whose user has a server and a token."""
    lonely.environment |= {"FORESTAY_SERVER": api.url, "FORESTAY_TOKEN": TOKEN}
    return lonely
