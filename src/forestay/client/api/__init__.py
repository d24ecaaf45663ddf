"""The clients, and every call of the HTTP interface."""
