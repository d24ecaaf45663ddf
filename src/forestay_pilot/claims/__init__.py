"""Claims: requests them, runs them in slots, and sends their completions."""
