"""A user's walk through the command line: the real server, reconciler and pilot on SQLite, started by `forestay dev`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forestay.apps import entry

FORESTAY = [sys.executable, "-c", "from forestay.apps.entry import main; main()"]
PATIENCE = 240.0
"""Seconds for anything to happen on a busy machine."""


@dataclass
class Laptop:
    """One user's machine."""

    home: Path
    port: int
    dev: subprocess.Popen[bytes] | None = None

    def __call__(self, *words: str, code: int = 0, stdin: str = "", **environment: str) -> str:
        """Run a command, expect its exit code, and give its stdout."""
        ended = self.run(*words, stdin=stdin, **environment)
        assert ended.exit_code == code, (words, ended.exit_code, ended.stdout[-2000:], ended.stderr[-2000:])
        return ended.stdout

    def run(self, *words: str, stdin: str = "", **environment: str) -> Result:
        """In this process, which spares the machine a hundred starts of Python; the server is another process."""
        own = self.environment() | environment
        ended = CliRunner().invoke(
            entry.app, words, input=stdin, env={name: own.get(name) for name in {*os.environ, *own}}
        )
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return ended

    def start_command(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*FORESTAY, *words], env=self.environment(), stdout=pipe, stderr=pipe, text=True, cwd=self.home
        )

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code))

    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("FORESTAY_", "XDG_"))}
        places = {"XDG_CONFIG_HOME": str(self.home / "config"), "XDG_STATE_HOME": str(self.home / "state")}
        return own | places | {"FORESTAY_CALLBACK_HOSTS": "127.0.0.1", "FORESTAY_TEMPORAL_PROGRAM": "none"}

    def start(self) -> None:
        self.dev = subprocess.Popen([*FORESTAY, "dev", "--port", str(self.port)], env=self.environment(), cwd=self.home)
        until(lambda: self.run("pilots", "--patience", "0").stdout.count("idle") > 0)

    def stop(self) -> None:
        assert self.dev is not None
        self.dev.send_signal(signal.SIGINT)
        self.dev.wait(PATIENCE)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    laptop = Laptop(tmp_path_factory.mktemp("laptop"), port)
    laptop.start()
    yield laptop
    laptop.stop()


def test_submit_wait_and_look(laptop: Laptop) -> None:
    job = laptop(
        "submit", "--name", "hello", "--output", "*.txt", "--", "sh", "-c", "echo hello; echo result > out.txt"
    ).strip()
    assert laptop("wait", "--timeout", "90", job) == f"{job} completed\n"
    assert laptop("logs", job) == "hello\n"
    described = laptop("describe", job[:8])
    assert "0 of at most" in described
    assert "Outputs" in described
    whole = laptop.json("describe", job)
    manifest = Path(whole["job"]["winner"]["manifest"]["path"])
    assert whole["job"]["winner"]["manifest"]["files"] == 1
    assert manifest.is_absolute()
    assert "completed" in laptop("story", job)
    assert job[:8] not in laptop("queue")
    assert job[:8] in laptop("queue", "-t", "CD")
    assert job[:8] in laptop("jobs", "--name", "hello", "--since", "1h")


def test_a_failed_job_tells_why_and_what_to_do(laptop: Laptop) -> None:
    script = "echo reading sample 7; echo 'no space left on device' >&2; exit 3"
    words = ["--name", "bad", "--max-attempts", "2", "--when-exhausted", "hold", "--", "sh", "-c", script]
    job = laptop("submit", *words).strip()
    laptop("wait", "--for", "faulted", "--timeout", "90", job)
    until(lambda: laptop.json("describe", job)["job"]["attempt"] == 2)
    laptop("wait", "--for", "faulted", "--timeout", "90", job)
    story = laptop("story", job)
    for text in (
        "claimed it for attempt 1",
        "Attempt 2 failed",
        "exit code 3",
        "no space left on device",
        f"forestay retry {job}",
    ):
        assert text in story
    assert laptop("queue", "-h", "-o", "%t %R", "-n", "bad") == "SE (Faulted:exit-3)\n"
    laptop("retry", "--reason", "space was made", job)
    until(lambda: laptop.json("describe", job)["job"]["attempt"] == 3)
    laptop("wait", "--for", "faulted", "--timeout", "90", job)
    laptop("force-complete", "--attempt", "2", "--reason", "stale", job, code=5)
    laptop("force-complete", "--attempt", "3", "--reason", "checked by hand", job)
    assert "checked by hand" in laptop("story", job)
    laptop("wait", job)


def test_exit_codes_of_jobs(laptop: Laptop) -> None:
    laptop("submit", "--wait", "--", "false", code=8)
    job = laptop("submit", "--", "sh", "-c", "exit 42").strip()
    laptop("wait", job, code=8)
    laptop("wait", "--propagate-exit", job, code=42)


def test_hold_release_cancel(laptop: Laptop) -> None:
    job = laptop("submit", "--hold", "--name", "later", "--", "sleep", "600").strip()
    assert laptop("queue", "-h", "-n", "later", "-o", "%t %R") == "H (JobHeldUser)\n"
    laptop("wait", "--timeout", "0.5", job, code=7)
    assert laptop("release", job) == f"{job} available\n"
    laptop("release", job, code=5)
    laptop("wait", "--for", "running", "--timeout", "90", job)
    until(lambda: laptop.json("describe", job)["job"]["claim"] is not None)
    claimed = laptop.json("describe", job)["job"]
    laptop("release", "--lock", "--attempt", str(claimed["attempt"] + 1), "--reason", "no", job, code=5)
    assert laptop("cancel", "--reason", "not needed", job) == f"{job} cancelled\n"
    laptop("wait", job, code=8)
    assert "not needed" in laptop("story", job)


@pytest.mark.ledger("P4-06")
def test_the_claim_of_a_pilot_is_taken_away_by_hand(laptop: Laptop) -> None:
    job = laptop("submit", "--", "sleep", "600").strip()
    until(lambda: laptop.json("describe", job)["job"]["claim"] is not None)
    laptop("release", "--lock", "--attempt", "1", "--reason", "the node is gone", job)
    until(lambda: laptop.json("describe", job)["job"]["attempt"] == 2)
    assert "the node is gone" in laptop("story", job)
    laptop("cancel", job)


def test_a_log_followed_while_it_is_written(laptop: Laptop) -> None:
    script = 'echo first; while [ ! -e "$0" ]; do sleep 0.1; done; echo last'
    flag = laptop.home / "go-on"
    job = laptop("submit", "--", "sh", "-c", script, str(flag)).strip()
    following = laptop.start_command("logs", "-f", job)
    assert following.stdout is not None
    assert following.stdout.readline() == "first\n"
    flag.touch()
    out, _ = following.communicate(timeout=PATIENCE)
    assert (following.returncode, out) == (0, "last\n")


def test_an_array_searched_counted_and_waited_for(laptop: Laptop) -> None:
    ids = laptop(
        "submit", "--count", "30", "--name", "array", "--label", "run=1", "--team", "t", "--", "echo", "{index}"
    ).split()
    assert len(set(ids)) == 30
    returned_laptop = laptop("wait", "--timeout", "90", "-", stdin="\n".join(ids))
    assert returned_laptop.split()[1::2] == ["completed"] * 30
    assert laptop.json("jobs", "--name", "array", "--by", "state") == {"counts": {"completed": 30}}
    assert set(laptop("jobs", "--label", "run=1", "--team", "t", "--all", "--ids").split()) == set(ids)
    place = next(job for job in laptop.json("jobs", "--name", "array", "--all")["jobs"] if job["index"] == 17)
    assert laptop("logs", place["id"]) == "17\n"


def test_events_are_followed(laptop: Laptop) -> None:
    following = laptop.start_command("events", "--json", "--name", "watched", "--count", "2")
    while following.poll() is None:  # the first events may come before the stream is open
        laptop("submit", "--wait", "--name", "watched", "--", "true")
    out, _ = following.communicate()
    assert [json.loads(line)["job"]["name"] for line in out.splitlines()] == ["watched"] * 2


@pytest.mark.ledger("P4-10")
def test_a_client_submits_asks_and_is_told_of_the_end(laptop: Laptop, told: Told) -> None:
    good = laptop("submit", "--callback", told.url, "--", "true").strip()
    bad = laptop("submit", "--callback", told.url, "--", "sh", "-c", "exit 5").strip()
    laptop("wait", "--timeout", "200", good, bad, code=8)
    until(lambda: len(told.bodies) >= 2)
    first = {body["job"]: body for body in reversed(told.bodies)}
    assert (first[good]["state"], first[good]["exit_code"]) == ("completed", 0)
    assert (first[bad]["state"], first[bad]["exit_code"]) == ("failed", 5)
    until(lambda: all(laptop.json("describe", job)["job"]["callback"]["done"] for job in (good, bad)))
    assert ", called" in laptop("describe", good)


def test_a_job_past_its_expected_runtime_raises_an_alert(laptop: Laptop) -> None:
    job = laptop("submit", "--expected-runtime", "1s", "--name", "long", "--", "sleep", "600").strip()
    until(lambda: job in [alert["job"] for alert in laptop.json("alerts")["alerts"]])
    assert "Alert: job long" in laptop("story", job)
    laptop("cancel", job)


@dataclass
class Told:
    """What a callback was told."""

    url: str
    bodies: list[dict[str, Any]]


@pytest.fixture
def told() -> Iterator[Told]:
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield Told(f"http://127.0.0.1:{server.server_address[1]}/done", bodies)
    server.shutdown()
    thread.join()
    server.server_close()


def test_more_jobs_than_one_request_takes(laptop: Laptop) -> None:
    many = laptop.home / "many.jsonl"
    many.write_text("".join(f'{{"index": {n}}}\n' for n in range(12_000)))
    words = ["submit", "--file", str(many), "--hold", "--name", "many", "--key", "one-key", "--", "true"]
    ids = laptop(*words).split()
    assert len(set(ids)) == 12_000
    again = laptop.run(*words)
    assert again.stdout.split() == ids
    assert "12,000 of 12,000 jobs existed already" in again.stderr
    assert laptop.json("jobs", "--name", "many", "--by", "state") == {"counts": {"available": 12_000}}
    shown = laptop.run("queue", "-n", "many", "-h")
    assert (len(shown.stdout.splitlines()), "1,000 of 12,000 jobs are shown" in shown.stderr) == (1000, True)
    # Only the 10,000 newest are looked through; of jobs of one moment those with the highest ids.
    ((shared, _),) = Counter(job[:4] for job in sorted(ids)[6000:]).most_common(1)
    laptop("describe", shared, code=2)  # four characters prove nothing among so many


def test_refusals_say_what_to_do(laptop: Laptop) -> None:
    laptop("describe", "00000000-0000-4000-8000-000000000000", code=3)
    token = laptop.home / "viewer-token"
    laptop("token", "visitor", "--role", "viewer", "--out", str(token))
    assert laptop("queue", "--token-file", str(token), "--me", "-h") == ""
    laptop("submit", "--token-file", str(token), "--", "true", code=4)
    laptop("queue", code=4, FORESTAY_TOKEN="nonsense")
    wrong = laptop.run("submit", "--callback", "https://not-allowed.example.org", "--", "true")
    assert wrong.exit_code == 2
    assert "callback" in wrong.stderr


def test_a_server_that_goes_and_comes_back(laptop: Laptop) -> None:
    """Last: it stops the server that the others use."""
    slow = laptop("submit", "--hold", "--", "true").strip()
    waiting = laptop.start_command("wait", "-v", slow, "--patience", "0.1")
    assert waiting.stderr is not None
    while "is available" not in waiting.stderr.readline():
        assert waiting.poll() is None
    laptop.stop()
    laptop("queue", "--patience", "0.2", code=6)
    submitting = laptop.start_command("submit", "--name", "patient", "--patience", "120", "--", "true")
    assert submitting.stderr is not None
    assert "retrying in" in submitting.stderr.readline()
    laptop.start()
    out, _ = submitting.communicate(timeout=PATIENCE)
    assert submitting.returncode == 0
    assert laptop("jobs", "--name", "patient", "--ids") == out
    laptop("release", slow)
    out, _ = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, out) == (0, f"{slow} completed\n")
