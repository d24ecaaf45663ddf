"""Processes, job definitions and XML elements as values. Pure, so that Temporal can replay it."""
