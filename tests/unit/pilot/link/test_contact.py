"""Contact with the servers: outages, lost answers, heartbeats, channels, tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.speed import clock_limit
from tests.unit.pilot.conftest import RunningPilot
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer, until

from forestay_pilot.link.server_link import (
    RefusedError,
    ServerAddress,
    ServerLink,
    ServerRing,
    UnavailableError,
    UnreachableError,
)

StartPilot = Callable[..., RunningPilot]


def held(server: FakeServer) -> set[str]:
    """The claims that the last heartbeat named."""
    return set(server.seen.heartbeats[-1]["claims"]) if server.seen.heartbeats else set()


@pytest.fixture
def second(server: FakeServer) -> Iterator[FakeServer]:
    """Another server over the same store."""
    fake = FakeServer(server)
    yield fake
    fake.stop()


def test_a_payload_goes_on_through_an_outage_and_its_end_arrives_once(
    server: FakeServer, pilot: StartPilot, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    claim = server.submit(
        "sh", "-c", f"touch {tmp_path}/begun; while [ ! -e {go} ]; do sleep 0.02; done; touch {tmp_path}/over"
    )
    pilot()
    until((tmp_path / "begun").exists)
    server.stop()
    go.touch()
    until((tmp_path / "over").exists)
    spool = until(lambda: list((tmp_path / "work").glob("pilot-*/spool/*.json")), "the end in the spool")
    assert spool[0].stat().st_mode & 0o777 == 0o600
    server.start()
    assert server.end_of(claim)["outcome"] == "ok"
    until(lambda: not list((tmp_path / "work").glob("pilot-*/spool/*")), "an empty spool")
    again = server.submit("true")
    assert server.end_of(again)["outcome"] == "ok"
    assert [end["claim"] for end in server.seen.completions] == [claim["claim"], again["claim"]]


def test_an_end_whose_answer_is_lost_is_sent_again(server: FakeServer, pilot: StartPilot) -> None:
    server.heartbeat_every = 0.5
    server.failures.lose_completion_replies = 2
    claim = server.submit("sh", "-c", "exit 3")
    pilot()
    until(lambda: len(server.seen.completions) == 3, "two repeats")
    assert all(end == server.seen.completions[0] for end in server.seen.completions)
    assert server.seen.completions[0]["claim"] == claim["claim"]
    until(lambda: not held(server), "the claim to be let go of")


def test_an_end_is_kept_while_its_result_is_unknown(server: FakeServer, pilot: StartPilot) -> None:
    server.heartbeat_every = 0.5
    server.failures.end_result = "unknown"
    claim = server.submit("true")
    pilot()
    until(lambda: len(server.seen.completions) >= 2, "a repeat")
    count = len(server.seen.heartbeats)
    until(lambda: len(server.seen.heartbeats) > count + 1)
    assert held(server) == {claim["claim"]}
    server.failures.end_result = "superseded"
    until(lambda: not held(server), "the claim to be let go of")
    sent = len(server.seen.completions)
    assert server.end_of(server.submit("true"))["outcome"] == "ok"
    assert len(server.seen.completions) == sent + 1


def test_a_refused_failure_does_not_hold_up_the_others(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    server.failures.refuse_completions = 4
    bad = server.submit("false")
    running = pilot()
    until(lambda: not server.failures.refuse_completions, "the end to be given up")
    good = server.submit("true")
    assert server.end_of(good)["outcome"] == "ok"
    assert bad["claim"] not in [end["claim"] for end in server.seen.completions]
    assert running.end() == 0
    assert list((tmp_path / "work").glob("pilot-*/spool/*.refused")), "the refused end is still on disk"


@pytest.mark.finding("F-B1")
def test_a_good_completion_is_sent_until_it_is_taken(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    server.failures.refuse_completions = 6
    refused = server.submit("true")
    running = pilot()
    until(lambda: server.failures.refuse_completions < 2, "more refusals than a pilot bears of a failure")
    assert list((tmp_path / "work").glob("pilot-*/spool/*.json")), "the completion is on disk"
    assert server.end_of(refused)["outcome"] == "ok"
    until(lambda: not list((tmp_path / "work").glob("pilot-*/spool/*")), "an empty spool")
    assert running.end() == 0


@pytest.mark.finding("F-B1")
def test_a_damaged_end_in_the_spool_is_set_aside(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    spool = tmp_path / "work" / "pilot-dead" / "spool"
    spool.mkdir(parents=True, mode=0o700)
    (tmp_path / "work").chmod(0o700)
    (tmp_path / "work" / "pilot-dead").chmod(0o700)
    (spool.parent / "lock").touch(mode=0o600)
    (spool / "half.json").write_text('[{"claim": "c1", "outc')
    pilot()
    damaged = until(lambda: list((tmp_path / "work").glob("pilot-*/spool/*.damaged")), "the damaged end")
    assert damaged[0].read_text() == '[{"claim": "c1", "outc'


def test_heartbeats_count_up_and_name_exactly_what_is_held(
    server: FakeServer, pilot: StartPilot, tmp_path: Path
) -> None:
    server.heartbeat_every = 0.25
    claim = server.submit("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    pilot()
    until(lambda: held(server) == {claim["claim"]}, "the claim in a heartbeat")
    (tmp_path / "go").touch()
    until(lambda: not held(server), "heartbeats without the claim")
    until(lambda: len(server.seen.heartbeats) >= 10, "ten heartbeats")
    heartbeats = list(server.seen.heartbeats)
    assert [heartbeat["counter"] for heartbeat in heartbeats] == list(range(1, len(heartbeats) + 1))
    assert all(heartbeat["session"] == 1 for heartbeat in heartbeats)
    assert all(claims in ([], [claim["claim"]]) for claims in (heartbeat["claims"] for heartbeat in heartbeats))
    gaps = [later["at"] - earlier["at"] for earlier, later in zip(heartbeats, heartbeats[1:])]
    # A busy machine makes some gaps longer, never the mean shorter.
    assert min(gaps) < 0.5
    assert sum(gaps) / len(gaps) > 0.23


def test_a_heartbeat_is_not_held_up_by_a_claim_or_an_end(server: FakeServer, pilot: StartPilot) -> None:
    server.heartbeat_every = 0.1
    server.failures.claims_after_heartbeats = 6
    server.submit("true")
    pilot()
    until(lambda: server.seen.claim_requests, "a claim request under way")
    until(lambda: len(server.seen.heartbeats) > 5, "heartbeats meanwhile")
    assert len(server.seen.claim_requests) == 1


def test_the_next_channel_opens_before_the_last_one_closes(server: FakeServer, pilot: StartPilot) -> None:
    server.heartbeat_every = 0.1
    server.failures.silent_channels = True
    pilot(silence=0.4)
    until(lambda: ("open", 3) in server.seen.channel, "a third channel")
    server.failures.silent_channels = False
    events = list(server.seen.channel)
    assert events.index(("open", 2)) < events.index(("close", 1))
    until(lambda: ("close", 2) in server.seen.channel)
    assert server.seen.channel.index(("open", 3)) < server.seen.channel.index(("close", 2))
    until(lambda: server.seen.heartbeats[-1]["session"] >= 3, "heartbeats of the newest session")


def test_a_broken_channel_is_opened_at_another_server_at_once(
    server: FakeServer, second: FakeServer, pilot: StartPilot
) -> None:
    server.heartbeat_every = second.heartbeat_every = 0.5
    pilot(servers=[server.url, second.url])
    until(lambda: server.channels or second.channels, "a channel")
    first, other = (server, second) if server.channels else (second, server)
    broken = time.monotonic()
    first.stop()
    until(lambda: other.channels, "a channel at the other server")
    assert time.monotonic() - broken < clock_limit(1.0)
    count = len(server.seen.heartbeats)
    until(lambda: len(server.seen.heartbeats) > count + 2, "heartbeats at the other server")
    assert other.end_of(other.submit("true"))["outcome"] == "ok"


def test_an_expired_token_is_renewed(server: FakeServer, pilot: StartPilot) -> None:
    server.heartbeat_every = 3.0
    pilot()
    until(lambda: server.seen.heartbeats, "a heartbeat")
    for token in list(server.tokens):
        server.tokens[token] = 0.0  # all have run out, as after a long outage
    claim = server.submit("true")
    assert server.end_of(claim)["outcome"] == "ok"
    assert server.seen.renewals == 1
    assert len(server.seen.registrations) == 1


def test_a_token_is_renewed_before_it_runs_out(server: FakeServer, pilot: StartPilot) -> None:
    server.heartbeat_every = 0.1
    server.failures.token_seconds = 3.0
    pilot()
    until(lambda: server.seen.renewals >= 1, "a renewal")
    assert server.seen.unauthorised == 0


def test_a_forgotten_pilot_enrols_again(server: FakeServer, pilot: StartPilot) -> None:
    server.heartbeat_every = 3.0
    pilot()
    until(lambda: server.seen.heartbeats, "a heartbeat")
    server.tokens.clear()
    until(lambda: len(server.seen.registrations) == 2, "a second registration")
    assert server.end_of(server.submit("true"))["outcome"] == "ok"


def test_a_log_order_is_followed_to_the_end(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    claim = server.submit("sh", "-c", f"echo first; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo caf\u00e9")
    pilot()
    until(lambda: list((tmp_path / "work").glob("pilot-*/logs/*.log")), "a log")
    server.order("log", {"claim": claim["claim"], "follow": True})
    until(lambda: server.seen.logs, "the first piece")
    (tmp_path / "go").touch()
    until(lambda: server.seen.logs[-1]["last"], "the last piece")
    assert "".join(piece["text"] for piece in server.seen.logs) == "first\ncaf\u00e9\n"
    assert [piece["offset"] for piece in server.seen.logs] == sorted(piece["offset"] for piece in server.seen.logs)


def test_the_server_that_holds_the_channel_is_asked_first(server: FakeServer) -> None:
    other = FakeServer()
    try:
        ring = ServerRing([server.url, other.url])
        link = ServerLink(ring)
        for home in (server, other, server):
            ring.home = ServerAddress.read(home.url)
            before = len(home.seen.registrations)
            link.call("POST", "/v1/pilots", {"host": "here"}, token=ENROL_TOKEN, timeout=5)
            assert len(home.seen.registrations) == before + 1
        server.stop()
        link.call("POST", "/v1/pilots", {"host": "here"}, token=ENROL_TOKEN, timeout=5)
        assert len(other.seen.registrations) == 2
        link.close()
    finally:
        other.stop()


def test_errors_say_whether_to_try_again(server: FakeServer) -> None:
    link = ServerLink(ServerRing([server.url]))
    with pytest.raises(RefusedError, match="bad token") as refused:
        link.call("POST", "/v1/pilots", {}, token="wrong", timeout=5)
    assert not refused.value.can_retry
    server.failures.drop_requests = True
    with pytest.raises(UnreachableError) as unreachable:
        link.call("POST", "/v1/pilots", {}, token="wrong", timeout=5)
    assert unreachable.value.can_retry
    server.stop()
    with pytest.raises(UnreachableError):
        link.call("POST", "/v1/pilots", {}, token="wrong", timeout=5)
    assert UnavailableError(503, "store down", 2.0).can_retry
    link.close()


@pytest.mark.parametrize("url", ["ftp://host", "host:80", "http://", "http://user@host", "http://host?x=1"])
def test_an_address_is_checked(url: str) -> None:
    with pytest.raises(ValueError, match="not the address"):
        ServerRing([url])
