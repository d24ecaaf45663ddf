"""Calls of functions in interpreters that stay warm."""
