"""The client by itself: repeats, errors, streams, asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.apps.cli.fake_api import TOKEN, FakeApi, Trouble, event, job_json

from forestay.client import (
    ApiError,
    AsyncForestayClient,
    BadAnswer,
    BadRequest,
    BadSettings,
    ConflictError,
    ForestayClient,
    NotAllowed,
    NotFoundError,
    Patience,
    Unavailable,
)
from forestay.client.api import calls
from forestay.client.api.submission import portions
from forestay.client.transport.event_stream import EventReader, StreamEvent

JOB = job_json(1)["id"]


def scripted(*answers: httpx.Response | Exception) -> httpx.MockTransport:
    """A transport that gives these answers in turn."""
    left = iter(answers)

    def answer(_: httpx.Request) -> httpx.Response:
        returned_answer = next(left)
        if isinstance(returned_answer, Exception):
            raise returned_answer
        return returned_answer

    return httpx.MockTransport(answer)


def client_of(
    *answers: httpx.Response | Exception, slept: list[float] | None = None, seconds: float = 30
) -> ForestayClient:
    pauses = [] if slept is None else slept
    return ForestayClient(
        "http://127.0.0.1:1",
        TOKEN,
        transport=scripted(*answers),
        sleep=pauses.append,
        patience=Patience(seconds=seconds),
    )


def away() -> httpx.Response:
    return httpx.Response(503, json={"detail": "store"}, headers={"Retry-After": "2"})


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, BadRequest), (401, NotAllowed), (403, NotAllowed), (404, NotFoundError), (409, ConflictError), (413, BadRequest), (422, BadRequest), (500, ApiError)],
)  # fmt: skip
def test_a_problem_document_becomes_an_error(status: int, kind: type[ApiError]) -> None:
    body = {"title": "T", "detail": "fix it", "errors": [{"at": "body.x", "detail": "no"}]}
    with client_of(httpx.Response(status, json=body)) as client, pytest.raises(kind, match="fix it") as caught:
        client.status()
    assert (caught.value.status, caught.value.problems) == (status, body["errors"])


def test_an_error_without_a_document() -> None:
    with client_of(httpx.Response(404, text="<html>")) as client, pytest.raises(NotFoundError, match="Not Found"):
        client.status()


def test_a_redirect_is_not_followed() -> None:
    moved = httpx.Response(307, headers={"Location": "http://elsewhere.invalid/"})
    with client_of(moved) as client, pytest.raises(BadAnswer):
        client.status()


def test_a_server_that_asks_to_come_back_is_believed() -> None:
    slept: list[float] = []
    ok = httpx.Response(200, json={"version": "x"})
    with client_of(away(), httpx.Response(429, headers={"Retry-After": "1"}), ok, slept=slept) as client:
        assert client.status() == {"version": "x"}
    assert 2 <= slept[0] <= 2.5
    assert 1 <= slept[1] <= 1.25


def test_waits_grow_and_patience_ends() -> None:
    slept: list[float] = []
    errors = [httpx.ReadTimeout("slow")] * 50
    with client_of(*errors, slept=slept, seconds=0.9) as client, pytest.raises(Unavailable) as caught:
        client.status()
    assert not caught.value.outcome_unknown  # a reading has no outcome
    assert len(slept) >= 2
    assert slept[0] <= 0.25
    assert all(pause <= 0.9 for pause in slept)


@pytest.mark.parametrize(
    ("error", "unknown"), [(httpx.ConnectError("refused"), False), (httpx.ReadError("reset"), True)]
)
def test_whether_the_outcome_is_known(error: httpx.TransportError, unknown: bool) -> None:
    with client_of(error, seconds=0) as client, pytest.raises(Unavailable) as caught:
        client.cancel(JOB)
    assert caught.value.outcome_unknown is unknown


def test_a_certificate_that_is_not_trusted_is_no_outage() -> None:
    error = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] unable to get local issuer certificate")
    with client_of(error) as client, pytest.raises(BadSettings, match="FORESTAY_CA_FILE"):
        client.status()


@given(tries=st.integers(0, 40), spent=st.floats(0, 100), asked=st.none() | st.floats(0, 100), chance=st.floats(0, 1))
def test_patience_is_never_overdrawn(tries: int, spent: float, asked: float | None, chance: float) -> None:
    patience = Patience(seconds=30)
    pause = patience.pause(tries, spent=spent, asked=asked, chance=chance)
    if pause is not None:
        assert 0 <= pause <= 30 - spent
        assert asked is None or pause >= asked


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["job", "log", "x"]),
            st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1),
        )
    ),
    cuts=st.lists(st.integers(0, 2000)),
)
def test_events_survive_any_cut(events: list[tuple[str, str]], cuts: list[int]) -> None:
    whole = b"".join(f"event: {name}\ndata: {data}\n\n".encode() for name, data in events)
    reader, got = EventReader(), []
    edges = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    for begin, end in pairwise(edges):
        got += list(reader.feed(whole[begin:end]))
    assert got == [StreamEvent(name, data, "") for name, data in events]


def test_parts_of_an_event() -> None:
    reader = EventReader()
    text = b": a comment\r\nid: 7\r\nevent: job\r\ndata: one\r\ndata: two\r\nretry: 5\r\n\r\n\r\ndata: three\n\n"
    assert list(reader.feed(text)) == [StreamEvent("", "a comment", ""), StreamEvent("job", "one\ntwo", "7"), StreamEvent("message", "three", "7")]  # fmt: skip


def test_large_jobs_make_small_requests() -> None:
    jobs = [{"parameters": {"text": "x" * (1 << 20)}} for _ in range(20)]
    cut = list(portions(jobs, "k"))  # type: ignore[arg-type]
    assert [len(portion.jobs) for portion in cut] == [7, 7, 6]
    assert [portion.key for portion in cut] == ["k", "k.1", "k.2"]


async def test_the_asyncio_client(api: FakeApi) -> None:
    async with AsyncForestayClient(api.url, TOKEN) as client:
        api.troubles = [Trouble(lose_answer=True)]
        (accepted,) = await client.submit([{}], {"name": "x", "command": ["true"]})
        name = accepted["id"]
        assert (await client.job(name))["id"] == name
        assert (await client.find_jobs({"state": "available"})).jobs == list(api.jobs.values())
        assert await client.count_jobs() == {"available": 1}
        api.troubles = [Trouble(lose_answer=True)]
        assert (await client.cancel(name))["state"] == "cancelled"
        with pytest.raises(NotFoundError):
            await client.job("nothing")
        api.streams = [[event("job", {"n": 1}, "1:1")]]
        async with client.stream(calls.events()) as stream:
            assert [stream_event async for stream_event in stream] == [StreamEvent("job", '{"n": 1}', "1:1")]


async def test_the_asyncio_client_gives_up_too() -> None:
    patience = Patience(seconds=1)
    async with AsyncForestayClient(
        "http://127.0.0.1:1", TOKEN, transport=scripted(away()), patience=patience
    ) as client:
        with pytest.raises(Unavailable, match="store"):
            await client.job(JOB)


def test_a_silent_stream_is_unavailable() -> None:
    def silent() -> Iterator[bytes]:
        yield event("open", {})
        raise httpx.ReadTimeout("silent")

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=_Pieces(silent))

    client = ForestayClient("http://127.0.0.1:1", TOKEN, transport=httpx.MockTransport(answer))
    with client, pytest.raises(Unavailable), client.stream(calls.events()) as stream:
        assert [stream_event.name for stream_event in stream] == ["open"]


class _Pieces(httpx.SyncByteStream):
    def __init__(self, pieces: Callable[[], Iterator[bytes]]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces()
