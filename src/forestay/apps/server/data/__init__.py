"""Routes for files."""
