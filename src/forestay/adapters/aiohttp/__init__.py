"""Calls to task servers by aiohttp: a relay makes many, and aiohttp is the fastest of our HTTP libraries."""
