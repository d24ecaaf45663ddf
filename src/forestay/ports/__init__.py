"""Interfaces to everything outside the process; each port states its contract."""
