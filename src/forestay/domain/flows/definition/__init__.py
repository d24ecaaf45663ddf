"""What a flow is, and whether it is well formed."""
