"""Failures: what was seen of an attempt that did not end well, why, and as which exception rules may answer it."""
