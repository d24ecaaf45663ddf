"""Ports for rules."""
