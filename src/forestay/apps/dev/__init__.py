"""Everything on a laptop."""
