"""The elements of a scatter, and the shards that look after them."""
