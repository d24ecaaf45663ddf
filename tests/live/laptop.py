"""`forestay dev` as a user starts it, with a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers import address

FORESTAY = [sys.executable, "-c", "from forestay.apps.entry import main; main()"]
PATIENCE = 240.0


@dataclass
class Laptop:
    """The commands of one user, and what `forestay dev` keeps for them."""

    home: Path
    port: int
    dev: subprocess.Popen[bytes] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """Of the environment of `forestay dev`."""

    @property
    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("FORESTAY_", "XDG_"))}
        places = {f"XDG_{name.upper()}_HOME": str(self.home / name) for name in ("config", "state", "cache")}
        return own | places | {"FORESTAY_TEMPORAL_PROGRAM": address("FORESTAY_TEST_TEMPORAL_PROGRAM")}

    def start(self) -> None:
        words = [*FORESTAY, "dev", "--port", str(self.port), "--slots", "4"]
        path = self.home / "dev.log"
        with path.open("wb") as log:
            self.dev = subprocess.Popen(words, env=self.environment | self.settings, cwd=self.home, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while b"Ctrl-C stops it" not in path.read_bytes():
            assert self.dev.poll() is None, path.read_text()
            assert time.monotonic() < deadline, path.read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        assert self.dev is not None
        self.dev.send_signal(signal.SIGINT)
        self.dev.wait(PATIENCE)

    def kill(self) -> None:
        """As a power cut does it."""
        assert self.dev is not None
        self.dev.kill()
        self.dev.wait(PATIENCE)

    def run(self, *words: str, code: int = 0) -> str:
        ended = subprocess.run(
            [*FORESTAY, *words], env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=PATIENCE, check=False
        )  # fmt: skip
        assert ended.returncode == code, (words, ended.returncode, ended.stdout[-2000:], ended.stderr[-2000:])
        return ended.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))


def new_laptop(home: Path) -> Laptop:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Laptop(home, free.getsockname()[1])
