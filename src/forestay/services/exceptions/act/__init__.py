"""Decisions carried out, each step one version-checked write."""
