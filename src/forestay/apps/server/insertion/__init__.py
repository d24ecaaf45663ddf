"""Routes for GA4GH clients and task servers."""
