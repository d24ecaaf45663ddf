"""Ends on their way: which go together, and what is found in the spool of a dead pilot: ends are taken over, and what is none is set aside."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.fake_server import until

from forestay_pilot.claims import completion_queue
from forestay_pilot.claims.completion_queue import CompletionQueue
from forestay_pilot.claims.work_requests import WorkRequest, WorkRequests
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


def test_ends_before_one_that_was_half_written_are_taken(queue: CompletionQueue, tmp_path: Path) -> None:
    content = json.dumps([END, {**END, "claim": "c2"}])[:-20]
    (tmp_path / "a.json").write_text(content)
    queue.adopt([str(tmp_path / "a.json")])
    assert queue.waiting() == 1
    assert json.loads((tmp_path / "a.json").read_text()) == [END]
    assert (tmp_path / "a.json.damaged").read_text() == content


class Settling(PilotIdentity):
    """Servers that settle whatever they are sent."""

    def __init__(self, ring: ServerRing) -> None:
        super().__init__(ring, "", {})
        self.batches: list[list[str]] = []

    def call(self, *words: Any, **_options: Any) -> dict[str, Any]:
        ends = words[3]["completions"]
        self.batches.append([end["claim"] for end in ends])
        return {"results": [{"claim": end["claim"], "result": "committed"} for end in ends]}


class Ahead(WorkRequests):
    """Asks for no work."""

    def __init__(self) -> None:
        self.enough = False

    def enough_ahead(self) -> bool:
        return self.enough

    def begin(self, *, wait: float = 0.0, patience: float = 0.0) -> WorkRequest | None:
        return None


@pytest.fixture
def settling() -> Settling:
    return Settling(ServerRing(["http://127.0.0.1:1"]))


@pytest.fixture
def ahead() -> Ahead:
    return Ahead()


@pytest.fixture
def sending(settling: Settling, ahead: Ahead, tmp_path: Path) -> Iterator[CompletionQueue]:
    """A queue at work."""
    ring = ServerRing(["http://127.0.0.1:1"])
    queue = CompletionQueue(ring, settling, str(tmp_path), on_settled=lambda _claim, _result: None)
    queue.ask_along(ahead)
    queue.start()
    yield queue
    queue.end()
    queue.join(60)


def end_of(claim: str) -> dict[str, str]:
    return {**END, "claim": claim}


def test_ends_go_together_while_the_slots_have_enough_to_run(
    sending: CompletionQueue, settling: Settling, ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_queue, "_GATHER", 3600.0)
    ahead.enough = True
    for claim in ("c1", "c2", "c3"):
        sending.put([end_of(claim)])
    assert not sending.flush(0.3)
    ahead.enough = False
    sending.put([end_of("c4")])
    assert sending.flush(60)
    assert settling.batches == [["c1", "c2", "c3", "c4"]]


def test_an_end_waits_a_moment_at_most_for_others(sending: CompletionQueue, settling: Settling, ahead: Ahead) -> None:
    ahead.enough = True
    for claim in ("c1", "c2"):
        sending.put([end_of(claim)])
        assert sending.flush(60)
    assert settling.batches == [["c1"], ["c2"]]


def test_an_end_is_sent_at_once_when_a_slot_needs_work(
    sending: CompletionQueue, settling: Settling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_queue, "_GATHER", 3600.0)
    sending.put([end_of("c1")])
    assert sending.flush(60)
    assert settling.batches == [["c1"]]


def test_ends_that_come_while_others_are_sent_are_not_forgotten(
    sending: CompletionQueue, settling: Settling, ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_queue, "_GATHER", 3600.0)
    under_way, answered = threading.Event(), threading.Event()
    answer: Callable[..., dict[str, Any]] = settling.call

    def slow(*words: Any, **options: Any) -> dict[str, Any]:
        under_way.set()
        assert answered.wait(60)
        return answer(*words, **options)

    monkeypatch.setattr(settling, "call", slow)
    sending.put([end_of("c1")])
    assert under_way.wait(60)
    ahead.enough = True
    sending.put([end_of("c2")])
    ahead.enough = False
    sending.put([end_of("c3")])
    answered.set()
    assert sending.flush(60)
    until(lambda: settling.batches == [["c1"], ["c2", "c3"]], "both requests")


def test_an_end_that_is_there_twice_leaves_no_file(sending: CompletionQueue, tmp_path: Path, ahead: Ahead) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps([end_of("c1")]))
    sending.adopt([str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    assert sending.flush(60)
    ahead.enough = True
    sending.put([end_of("c2")])
    sending.put([{**end_of("c2"), "outcome": "failure"}])
    assert sending.flush(60)
    assert os.listdir(tmp_path) == []
