"""The server process: the HTTP interface, claims, completions, heartbeats and channels."""
