"""Readers of YAML and XML, and pieces of text."""
