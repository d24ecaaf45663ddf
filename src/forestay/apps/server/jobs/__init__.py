"""Routes for jobs."""
