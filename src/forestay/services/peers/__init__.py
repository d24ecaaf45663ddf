"""Other domains: links, leases, and runs placed with them."""
