"""What the servers are told of a cache, whatever gets lost on the way."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from tests.sizes import examples

from forestay_pilot.cache import cache_changes
from forestay_pilot.cache.cache_changes import CacheChanges


class Server:
    """A server that keeps to the contract: a report that does not continue what it knows is not taken."""

    def __init__(self) -> None:
        self.version = 0
        self.files: dict[str, int] = {}
        self.gone: list[str] = []

    def take(self, report: dict[str, Any]) -> int:
        if report["base"] == 0:
            self.files = {}
        elif report["base"] != self.version:
            return self.version
        self.version = report["version"]
        self.files.update(dict(report["added"]))
        for name in report["removed"]:
            self.files.pop(name, None)
        self.gone += report["gone"]
        return self.version


def exchange(report: CacheChanges, server: Server) -> None:
    report.answered(server.take(report.request()))


def test_only_changes_are_told() -> None:
    report, server = CacheChanges(), Server()
    report.added("a", 1)
    exchange(report, server)
    report.added("b", 2)
    report.removed(["a"])
    reply = report.request()
    assert (reply["base"], reply["added"], reply["removed"]) == (1, [["b", 2]], ["a"])
    report.answered(server.take(reply))
    reply = report.request()
    assert (reply["version"], reply["base"], reply["added"], reply["removed"]) == (2, 2, [], [])
    assert server.files == {"b": 2}


def test_a_server_started_anew_is_told_everything_with_the_share() -> None:
    report, server = CacheChanges(), Server()
    report.share = {"url": "http://10.0.0.5:4711", "secret": "s"}
    report.added("a", 1)
    exchange(report, server)
    report.added("b", 2)
    new = Server()
    exchange(report, new)
    assert new.files == {}
    reply = report.request()
    assert reply["base"] == 0
    assert reply["share"] == report.share
    report.answered(new.take(reply))
    assert new.files == {"a": 1, "b": 2}
    assert "share" not in report.request()


def test_a_long_list_goes_in_pieces(monkeypatch: Any) -> None:
    monkeypatch.setattr(cache_changes, "MOST", 10)
    report, server = CacheChanges(), Server()
    for number in range(35):
        report.added(f"f{number}", number)
    requests = 0
    while len(server.files) < 35:
        exchange(report, server)
        requests += 1
    assert requests == 4


def test_the_last_link_is_told_of_even_when_everything_is() -> None:
    report, server = CacheChanges(), Server()
    report.added("a", 1)
    report.removed(["a"])
    report.gone(["a"])
    exchange(report, server)
    assert server.gone == ["a"]


class Wire(RuleBasedStateMachine):
    """Requests and answers get lost, servers are started anew: two requests that arrive, and the server is right again."""

    def __init__(self) -> None:
        super().__init__()
        self.report = CacheChanges()
        self.server = Server()
        self.held: dict[str, int] = {}

    @rule(number=st.integers(0, 9), size=st.integers(0, 5))
    def add(self, number: int, size: int) -> None:
        self.held[f"f{number}"] = size
        self.report.added(f"f{number}", size)

    @rule(number=st.integers(0, 9), last=st.booleans())
    def remove(self, number: int, last: bool) -> None:
        self.held.pop(f"f{number}", None)
        self.report.removed([f"f{number}"])
        if last:
            self.report.gone([f"f{number}"])

    @rule(lost=st.sampled_from(["nothing", "request", "answer"]))
    def tell(self, lost: str) -> None:
        request = self.report.request()
        if lost == "request":
            self.report.unanswered()
            return
        known = self.server.take(request)
        if lost == "answer":
            self.report.unanswered()
        else:
            self.report.answered(known)

    @rule()
    def start_anew(self) -> None:
        self.server = Server()

    def teardown(self) -> None:
        for _ in range(2):
            exchange(self.report, self.server)
        assert self.server.files == self.held


TestWire = Wire.TestCase
TestWire.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
