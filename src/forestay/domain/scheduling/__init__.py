"""Which job a pilot gets, by data, health and waiting time."""
