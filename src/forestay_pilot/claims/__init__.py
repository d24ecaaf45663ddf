"""Claims: asked for, run in slots, and their completions sent."""
