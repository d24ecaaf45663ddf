"""Payloads inside containers: which images there are, how they come to this host, and how a command runs in one."""
