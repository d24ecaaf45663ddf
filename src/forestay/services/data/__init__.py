"""Files: where they are, how they are reached, and what jobs committed."""
