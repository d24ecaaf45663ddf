"""The elements of a scatter, and the shards that manage them."""
