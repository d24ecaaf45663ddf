"""Ports for pilots."""
