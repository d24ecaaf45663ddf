"""Calls to addresses outside by httpx."""
