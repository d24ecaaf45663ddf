"""What a pilot looks at before it registers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.pilot.fake_server import FakeServer

from forestay_pilot.link import announcement, environment
from forestay_pilot.link.announcement import announce
from forestay_pilot.link.environment import CHECKS, Check, FailedCheck, PilotEnvironment, check_environment
from forestay_pilot.link.server_link import ServerRing

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def place(server: FakeServer, tmp_path: Path) -> Any:
    def make(**changes: Any) -> PilotEnvironment:
        known: dict[str, Any] = {
            "ring": ServerRing([server.url]),
            "work": str(tmp_path / "work"),
            "outputs": str(tmp_path / "out"),
            "script_seconds": 5.0,
            "server_wait": 5.0,
        }
        return PilotEnvironment(**known | changes)

    return make


def failed(place: PilotEnvironment) -> dict[str, str]:
    return {failed_check.check: failed_check.words for failed_check in check_environment(place)}


def script(folder: Path, text: str) -> str:
    path = folder / "own-check"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def test_a_good_place(place: Any, tmp_path: Path) -> None:
    assert failed(place(needs=["sh"], scripts=[script(tmp_path, "true")])) == {}
    assert (tmp_path / "out").is_dir()
    assert list((tmp_path / "work").iterdir()) == []


def test_everything_that_is_wrong_is_said_at_once(place: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    fields = failed(
        place(
            work=str(tmp_path / "file" / "work"),
            outputs=str(tmp_path / "file"),
            needs=["sh", "no-such-program", "nor-this"],
            memory=1 << 60,
            scripts=[str(tmp_path / "file")],
            ring=ServerRing([NOWHERE]),
            server_wait=0.0,
        )
    )
    assert set(fields) == {"work-folder", "outputs", "commands", "memory", "site-check", "server"}
    assert "cannot be written" in fields["work-folder"]
    assert fields["commands"] == "not on the PATH: no-such-program, nor-this"
    assert NOWHERE in fields["server"]


def test_too_little_space(place: Any) -> None:
    assert "are required" in failed(place(space=1 << 60))["work-space"]


def test_a_work_folder_of_another(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.stat("/").st_uid + 4711)
    assert "belongs to someone else" in failed(place())["work-folder"]


def test_no_scratch(place: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("forestay_pilot.link.environment.tempfile.gettempdir", lambda: str(tmp_path / "no" / "\0"))
    assert "scratch" in failed(place())


def test_a_clock_that_is_off(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "time", SimpleNamespace(time=lambda: time.time() + 5000, sleep=time.sleep))
    assert "this machine's clock is +500" in failed(place())["server"]
    assert failed(place(skew=6000.0)) == {}


def test_a_server_is_waited_for(place: Any, server: FakeServer) -> None:
    server.failures.drop_requests = True
    assert "does not respond" in failed(place(server_wait=0.3))["server"]
    assert failed(place(ring=ServerRing([NOWHERE, server.url]), server_wait=0.3)) != {}
    server.failures.drop_requests = False
    assert failed(place(ring=ServerRing([NOWHERE, server.url]))) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exit 3", "gave 3: no output"),
        ("echo first; printf 'last \\033[31mwords\\n'; exit 1", "gave 1: last  [31mwords"),
        ("kill -9 $$", "gave -9: no output"),
    ],
)
def test_what_a_sites_own_check_says(place: Any, tmp_path: Path, text: str, words: str) -> None:
    assert failed(place(scripts=[script(tmp_path, text)])) == {"site-check": f"own-check {words}"}


def test_a_check_that_does_not_end_is_ended(place: Any, tmp_path: Path) -> None:
    text = f"sleep 600 & echo $! > {tmp_path}/child; wait"
    fields = failed(place(scripts=[script(tmp_path, text)], script_seconds=1.0))
    assert fields == {"site-check": "own-check did not end within 1 s"}
    give_up = time.monotonic() + 30
    while not _dead(tmp_path):  # a signal takes its time on a busy machine
        assert time.monotonic() < give_up, "the check's child lives on"
        time.sleep(0.05)


def _dead(folder: Path) -> bool:
    try:
        stat = Path(f"/proc/{(folder / 'child').read_text().strip()}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def test_a_check_sees_nothing_of_the_pilots(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_PILOT", "not for others")
    assert (
        failed(place(scripts=[script(tmp_path, f"env > {tmp_path}/seen; ls -l /proc/self/fd > {tmp_path}/open")])) == {}
    )
    names = {line.partition("=")[0] for line in (tmp_path / "seen").read_text().splitlines()}
    assert names - {"PWD", "_", "SHLVL", "OLDPWD"} == {"PATH", "HOME", "FORESTAY_WORK", "FORESTAY_OUTPUT_FOLDER"}
    opened = (tmp_path / "open").read_text()
    assert "/dev/null" in opened
    assert "socket:" not in opened


def test_a_check_that_breaks_has_failed(place: Any) -> None:
    def broken(_place: PilotEnvironment) -> str:
        raise RuntimeError("no sense")

    assert check_environment(place(), (Check("odd", broken),)) == [FailedCheck("odd", "RuntimeError: no sense")]
    assert [check.name for check in CHECKS][-1] == "server"


def test_an_announcement_that_nobody_hears_does_not_hold_the_pilot_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcement, "time", SimpleNamespace(sleep=lambda _seconds: None))
    assert not announce(ServerRing([NOWHERE]), "t", {}, [FailedCheck("commands", "none")])
