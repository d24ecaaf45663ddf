"""Rules: what to do about an exception, as ripple-down trees that grow while flows run."""
