"""Flows: the graph of tasks, and how a run moves along it."""
