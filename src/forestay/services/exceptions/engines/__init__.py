"""Events from other engines, and commands to them."""
