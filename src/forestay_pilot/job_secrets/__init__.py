"""Secrets of jobs: read where the job runs, just before it starts, and given to it alone."""
