"""Routes for operating a domain."""
