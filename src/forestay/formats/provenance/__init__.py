"""OpenLineage events and RO-Crates."""
