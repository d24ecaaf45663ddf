"""Flows and their runs as documents, texts and pictures."""
