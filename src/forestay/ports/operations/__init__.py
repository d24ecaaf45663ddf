"""Ports for operating a domain."""
