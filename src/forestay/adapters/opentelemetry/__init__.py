"""Traces by OpenTelemetry. Needs `forestay[otel]`."""
