"""Flows: the graph of tasks, and how a case moves along it."""
