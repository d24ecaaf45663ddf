"""Pilots: who they are, their beats, and when silence means death."""
