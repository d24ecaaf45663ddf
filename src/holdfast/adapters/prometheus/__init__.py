"""Metrics by prometheus-client."""
