"""Playbooks: what is done about an exception, step by step."""
