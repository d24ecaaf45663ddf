"""Routes for rules."""
