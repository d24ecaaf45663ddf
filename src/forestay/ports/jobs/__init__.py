"""Ports for jobs."""
