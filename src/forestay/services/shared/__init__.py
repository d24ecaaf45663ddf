"""What services of all capabilities use: checked writes, background tasks, alerts."""
