"""Rules: stored, replayed, promoted and evaluated."""
