"""Processes, job definitions and SOAP messages as texts."""
