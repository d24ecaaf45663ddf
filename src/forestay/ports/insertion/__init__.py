"""Ports for users' own jobs and other task servers."""
