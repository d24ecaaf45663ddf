"""Ports for exceptions."""
