"""Routes for flows."""
