"""Connections, settings, event streams and errors."""
