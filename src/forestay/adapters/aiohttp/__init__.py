"""Calls to task servers by aiohttp: a relay makes many, and of the libraries we have it takes the least time over one."""
