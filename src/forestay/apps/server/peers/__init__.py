"""Routes for peers."""
