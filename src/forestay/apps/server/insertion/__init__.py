"""Routes for GA4GH clients, task servers and SOAP."""
