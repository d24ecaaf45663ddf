"""Ports for batch systems and site agents."""
