"""Pilots: enrolled, heard, drained, revoked, and found dead."""
