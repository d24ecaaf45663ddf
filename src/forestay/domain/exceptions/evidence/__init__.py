"""What was seen of an attempt that failed."""
