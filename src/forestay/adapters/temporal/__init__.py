"""Runs on Temporal."""
