"""Routes for pilots."""
