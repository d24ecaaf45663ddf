"""The client for asyncio programs; it sends the same calls as `ForestayClient` by the same rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import httpx

from forestay.client.api import calls, run_calls
from forestay.client.api.answers import JobList
from forestay.client.api.calls import Call, Filters, Json
from forestay.client.api.retrying_call import Patience, ReadBack, RetryingCall, RetryLater, problem
from forestay.client.transport.connection import Servers, new_client_options
from forestay.client.transport.errors import Unavailable
from forestay.client.transport.event_stream import EventReader, StreamEvent

if TYPE_CHECKING:
    from forestay.client.api.schemas import (
        AcceptedJson,
        Job,
        NewJob,
        RunDetails,
        SpecificationJson,
        StartedRunJson,
        StoredFlow,
        Story,
        WhyRun,
    )

T = TypeVar("T")


class AsyncForestayClient:
    """A connection to a Forestay installation, for asyncio."""

    def __init__(
        self,
        server: str | Sequence[str],
        token: str,
        *,
        patience: Patience | None = None,
        notice: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._servers = Servers(server)
        self._patience = patience or Patience()
        self._notice = notice
        self._sleep = sleep
        self._http = httpx.AsyncClient(transport=transport, **new_client_options(self._servers, token))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a call, and again as long as there is patience."""
        trial = RetryingCall(call, self._patience)
        while True:
            try:
                answer = await self._http.send(call.request(self._http, self._servers.current))
            except httpx.TransportError as error:
                verdict: RetryLater = trial.failed(error)
            else:
                judged = trial.answered(answer)
                if isinstance(judged, ReadBack):
                    return trial.settled(judged, await self.job(judged.job))
                if not isinstance(judged, RetryLater):
                    return judged.value
                verdict = judged
            self._servers.next()
            self._notice(f"{verdict.why}; retrying in {verdict.seconds:.1f} s")
            await self._sleep(verdict.seconds)

    async def submit(
        self, jobs: Sequence[NewJob], specification: SpecificationJson | None = None, *, key: str | None = None
    ) -> list[AcceptedJson]:
        return await self.send(calls.submit(jobs, specification, key=key))

    async def job(self, name: str) -> Job:
        return await self.send(calls.job(name))

    async def find_jobs(
        self,
        filters: Filters | None = None,
        *,
        sort: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JobList:
        return await self.send(calls.find_jobs(filters, sort=sort, limit=limit, cursor=cursor))

    async def count_jobs(self, by: str = "state", filters: Filters | None = None) -> dict[str, int]:
        return await self.send(calls.count_jobs(by, filters))

    async def story(self, job: str) -> Story:
        return await self.send(calls.story(job))

    async def why_run(self, job: str) -> WhyRun:
        return await self.send(calls.why_run(job))

    async def sizes(self, *, task: str = "", flow: str | None = None) -> Json:
        """The resources that jobs should have requested, from the usage of the newest; nothing acts on it."""
        return await self.send(calls.sizes(task=task, flow=flow))

    async def log(self, job: str, *, attempt: int | None = None) -> str:
        return await self.send(calls.log(job, attempt=attempt))

    async def cancel(self, job: str, *, reason: str | None = None) -> Job:
        return await self.send(calls.cancel(job, reason=reason))

    async def hold(self, job: str, *, reason: str | None = None) -> Job:
        return await self.send(calls.hold(job, reason=reason))

    async def let_go(self, job: str, *, holder: str | None = None) -> Job:
        return await self.send(calls.let_go(job, holder=holder))

    async def status(self) -> Json:
        return await self.send(calls.status())

    async def store_flow(self, text: str) -> StoredFlow:
        return await self.send(run_calls.store_flow(text))

    async def start_run(
        self, flow: str, params: Mapping[str, object] | None = None, *, key: str | None = None
    ) -> StartedRunJson:
        return await self.send(run_calls.start_run(flow, params, key=key))

    async def dry_run(
        self, flow: str | None = None, *, text: str | None = None, params: Mapping[str, object] | None = None
    ) -> Json:
        """What a run of a stored flow, or of one in a text, would do; nothing is stored or started."""
        return await self.send(run_calls.dry_run(flow, text=text, params=params))

    async def run(self, name: str) -> RunDetails:
        return await self.send(run_calls.run(name))

    async def resume(
        self,
        run: str,
        *,
        task: str = "",
        params: Mapping[str, object] | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Json:
        return await self.send(run_calls.resume(run, task=task, params=params, reason=reason, dry_run=dry_run))

    async def verb(self, run: str, kind: str, *, task: str = "", key: str | None = None, **more: object) -> Json:
        return await self.send(run_calls.verb(run, kind, task=task, key=key, **more))

    @asynccontextmanager
    async def stream(
        self, call: Call[None], *, last_id: str = "", silence: float = 60.0
    ) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """The events of a stream, until it ends; see `ForestayClient.stream`."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        request = call.request(self._http, self._servers.current, **headers)
        request.extensions["timeout"] = {**request.extensions["timeout"], "read": silence}
        try:
            answer = await self._http.send(request, stream=True)
            try:
                if not answer.is_success:
                    await answer.aread()
                    raise problem(answer)
                reader = EventReader(last_id)
                yield (event async for piece in answer.aiter_bytes() for event in reader.feed(piece))
            finally:
                await answer.aclose()
        except httpx.TransportError as error:
            self._servers.next()
            raise Unavailable(
                f"the stream was interrupted: {error or type(error).__name__}", outcome_unknown=False
            ) from error
