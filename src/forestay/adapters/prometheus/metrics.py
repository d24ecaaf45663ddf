"""The metrics of a process as Prometheus text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONG = (0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 28_800.0, 86_400.0)
"""The buckets of jobs' waits and runtimes."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Sample(NamedTuple):
    """One number: a counter when its name ends in `_total`, else a gauge."""

    name: str
    words: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


class Metrics(Collector):
    """Reads the services' own counters on request; adds nothing to the hot path."""

    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self.requests = Histogram(
            "forestay_request_seconds", "Time to answer a request", ["route"], buckets=SECONDS, registry=self._registry
        )

        self.waits = Histogram(
            "forestay_queue_wait_seconds", "From submission to the first claim", buckets=LONG, registry=self._registry
        )
        self.runs = Histogram(
            "forestay_run_seconds",
            "How long attempts ran, by how they ended",
            ["outcome"],
            buckets=LONG,
            registry=self._registry,
        )

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for sample in self._read():
            family = families.get(sample.name)
            names = [name for name, _ in sample.labels]
            if family is None:
                make = CounterMetricFamily if sample.name.endswith("_total") else GaugeMetricFamily
                family = families[sample.name] = make(sample.name, sample.words, labels=names)
            assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)  # noqa: S101 - made above
            family.add_metric([value for _, value in sample.labels], sample.value)
        yield from families.values()

    def text(self) -> bytes:
        return generate_latest(self._registry)
