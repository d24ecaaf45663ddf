"""From evidence to a cause."""
