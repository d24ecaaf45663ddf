"""Commands for files."""
