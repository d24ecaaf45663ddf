"""Jobs: accepted, followed, steered and ended."""
