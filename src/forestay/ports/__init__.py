"""What the outside must provide; each port states its law."""
