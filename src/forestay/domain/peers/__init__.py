"""Other domains: who they are, what they offer, and where a sub-flow goes."""
