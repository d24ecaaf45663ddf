"""Operating a domain: identity, sessions, notifications, lineage, traces, pruning."""
