"""What batch systems and workflow engines recorded of past jobs."""
