"""How exceptions are handled: detect, decide, safeguards, act, record."""
