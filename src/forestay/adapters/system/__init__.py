"""The machine's own clock and random numbers."""
