"""From an incident to a decision."""
