"""Pilots: who they are, their heartbeats, and when silence means death."""
