"""Routes for sites."""
