"""The pilot's cache of files."""
