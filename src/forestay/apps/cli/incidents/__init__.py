"""Commands for failures that need attention."""
