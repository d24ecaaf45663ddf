"""The server process: the HTTP interface, claims, ends, beats and channels."""
