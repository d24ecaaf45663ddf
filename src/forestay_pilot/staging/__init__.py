"""Stage-in and stage-out of files."""
