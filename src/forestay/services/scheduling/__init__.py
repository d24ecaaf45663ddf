"""Decides which pilot gets which job."""
