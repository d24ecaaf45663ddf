"""A conforming receiver of OTLP over HTTP: it takes what exporters send at `/v1/traces`, reads the protobuf messages, and answers as the protocol says.

Not a collector: it only keeps the spans.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from tests.unit.apps.server.connections import connections


@dataclass(frozen=True)
class SpanSeen:
    """One span, as it came over the wire."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    begin: int
    end: int
    attributes: dict[str, str | int | float]
    failed: bool
    why: str


@dataclass(eq=False)
class OtlpReceiver:
    port: int = 0
    spans: list[SpanSeen] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    requests: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def of(self, trace: str) -> list[SpanSeen]:
        """The spans of a trace, each once, by their begin."""
        once = {span.id: span for span in self.spans if span.trace == trace}
        return sorted(once.values(), key=lambda value: (value.begin, value.end))

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {n.lower(): value for n, _, value in (line.partition(": ") for line in head[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                assert head[0].startswith("POST /v1/traces ")
                assert headers["content-type"] == "application/x-protobuf"
                self.requests += 1
                self.tokens.add(headers.get("authorization", ""))
                self._take(gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body)
                answer = ExportTraceServiceResponse().SerializeToString()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n"
                    + f"Content-Length: {len(answer)}\r\n\r\n".encode()
                    + answer
                )
                await writer.drain()

    def _take(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            known = {attribute.key: attribute.value.string_value for attribute in group.resource.attributes}
            for span in (span for scope in group.scope_spans for span in scope.spans):
                getattrs = {
                    attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value") or "")
                    for attribute in span.attributes
                }
                self.spans.append(
                    SpanSeen(
                        known["service.name"], span.name, span.trace_id.hex(), span.span_id.hex(),
                        span.parent_span_id.hex(), span.start_time_unix_nano // 1_000_000,
                        span.end_time_unix_nano // 1_000_000, getattrs, span.status.code == 2, span.status.message,
                    )
                )  # fmt: skip


@asynccontextmanager
async def otlp_receiver() -> AsyncIterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    async with connections(receiver.connected) as receiver.port:
        yield receiver
