"""Traces by OpenTelemetry. Needs `holdfast[otel]`."""
