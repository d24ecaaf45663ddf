"""Ports for flows."""
