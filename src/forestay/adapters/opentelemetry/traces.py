"""Exports spans by OTLP over HTTP, in batches, from a thread of its own; provides the interceptor with which Temporal's client traces runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from temporalio.contrib.opentelemetry import TracingInterceptor

from forestay.domain.jobs.job_spans import Span, read_traceparent

SECONDS = 10
QUEUE = 20_000
"""The most spans that wait to be sent; further ones are dropped."""
EVERY = 1000
"""Milliseconds between exports."""


class OtlpTraces:
    """Implements `ports.operations.traces.Traces`."""

    def __init__(self, url: str, *, process: str, version: str, share: float, token: Callable[[], str] | None) -> None:
        headers = {"Authorization": f"Bearer {token()}"} if token is not None else None
        exporter = OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces", headers=headers, timeout=SECONDS)
        self._processor = BatchSpanProcessor(exporter, max_queue_size=QUEUE, schedule_delay_millis=EVERY)
        self._process = process
        self._version = version
        self._resource = cache(self._make_resource)
        # It exports the remaining spans when the process ends.
        self.provider = TracerProvider(resource=self._resource(process), sampler=ParentBased(TraceIdRatioBased(share)))
        self.provider.add_span_processor(self._processor)

    def tell(self, spans: Iterable[Span]) -> None:
        for span in spans:
            self._processor.on_end(self._readable(span))

    def current(self) -> str:
        now = trace.get_current_span().get_span_context()
        if not now.is_valid:
            return ""
        return f"00-{now.trace_id:032x}-{now.span_id:016x}-{int(now.trace_flags):02x}"

    @contextmanager
    def within(self, traceparent: str) -> Iterator[None]:
        context = read_traceparent(traceparent)
        if context is None:
            yield
            return
        above = NonRecordingSpan(_context(context.trace, context.parent, sampled=context.sampled, remote=True))
        token = contexts.attach(trace.set_span_in_context(above))
        try:
            yield
        finally:
            contexts.detach(token)

    def interceptor(self) -> TracingInterceptor:
        """Follows runs through Temporal: their starts, signals, workflows and activities."""
        return TracingInterceptor(self.provider.get_tracer("forestay", self._version))

    def flush(self) -> bool:
        """Export all waiting spans now."""
        return self.provider.force_flush()

    def _make_resource(self, process: str) -> Resource:
        attributes: Mapping[str, str] = {"service.name": f"forestay-{process}", "service.version": self._version}
        return Resource.create(dict(attributes))

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace, span.id),
            parent=_context(span.trace, span.parent) if span.parent else None,
            resource=self._resource(span.process or self._process),
            attributes=dict(span.attributes),
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK),
            start_time=span.begin * 1_000_000,
            end_time=span.end * 1_000_000,
        )


def _context(trace_id: str, span_id: str, *, sampled: bool = True, remote: bool = False) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=remote, trace_flags=flags)
