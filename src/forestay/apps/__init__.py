"""One package per process."""
