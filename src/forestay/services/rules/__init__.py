"""Rules: written, replayed, promoted, and asked."""
