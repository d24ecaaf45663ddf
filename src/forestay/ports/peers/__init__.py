"""Ports for other domains."""
