"""The site agent's process."""
