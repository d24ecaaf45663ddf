"""Routes for hosts."""
