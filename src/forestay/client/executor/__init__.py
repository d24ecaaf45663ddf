"""Functions that run as jobs, and their futures."""
