"""What is found in the spool of a dead pilot: ends are taken over, and what is none is set aside."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from forestay_pilot.claims.completion_queue import CompletionQueue
from forestay_pilot.link.identity import PilotIdentity
from forestay_pilot.link.server_link import ServerRing

END = {"job": "j1", "claim": "c1", "outcome": "ok"}


@pytest.fixture
def queue(tmp_path: Path) -> CompletionQueue:
    ring = ServerRing(["http://127.0.0.1:1"])
    return CompletionQueue(ring, PilotIdentity(ring, "", {}), str(tmp_path), on_settled=lambda _claim, _result: None)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.mkdir()


def _deep(path: Path) -> None:
    path.write_text("[" * 200_000)


def _number(path: Path) -> None:
    path.write_text("7")


def _nameless(path: Path) -> None:
    path.write_text(json.dumps([{"job": "j1", "claim": "../../c1"}, {"claim": "c1"}, "c1", None]))


@pytest.mark.parametrize("make", [_pipe, _endless, _folder, _deep, _number, _nameless])
def test_what_is_no_completion_is_set_aside_and_the_next_one_is_taken(
    queue: CompletionQueue, tmp_path: Path, make: object
) -> None:
    assert callable(make)
    make(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(json.dumps(END))
    queue.adopt([str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    assert queue.waiting() == 1
    assert sorted(os.listdir(tmp_path)) == ["a.json.damaged", "b.json"]


def test_an_end_beside_something_else_in_one_file_is_taken(queue: CompletionQueue, tmp_path: Path) -> None:
    content = json.dumps([{"claim": ["c0"]}, END])
    (tmp_path / "a.json").write_text(content)
    queue.adopt([str(tmp_path / "a.json")])
    assert queue.waiting() == 1
    assert json.loads((tmp_path / "a.json").read_text()) == [END], "and is still on disk"
    assert (tmp_path / "a.json.damaged").read_text() == content
