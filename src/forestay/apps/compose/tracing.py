"""Traces, if configured; otherwise nothing is loaded."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from forestay.apps.compose.secrets import secret_at
from forestay.apps.config.settings import Settings
from forestay.ports.errors import Permanent

if TYPE_CHECKING:
    from forestay.adapters.opentelemetry.traces import OtlpTraces


def make_traces(settings: Settings, process: str) -> OtlpTraces | None:
    """The exporter of traces; None: not configured."""
    if not settings.otlp:
        return None
    try:
        from forestay.adapters.opentelemetry.traces import OtlpTraces
    except ImportError:
        raise Permanent("traces need OpenTelemetry; pip install 'forestay[otel]', or unset otlp") from None
    token = secret_at(settings.otlp_secret)
    return OtlpTraces(
        settings.otlp, process=process, version=version("forestay"), share=settings.otlp_share, token=token
    )
