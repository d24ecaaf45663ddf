"""Jobs: submission, events, control and completion."""
