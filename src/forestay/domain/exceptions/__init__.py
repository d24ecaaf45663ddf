"""Failures: the evidence of a failed attempt, its cause, and the exception that rules may answer."""
