"""Carries out decisions; each step is one version-checked write."""
