"""Routes for exceptions."""
