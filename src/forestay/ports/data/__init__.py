"""Ports for files."""
