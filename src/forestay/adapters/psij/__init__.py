"""Batch systems through PSI/J: submits and cancels pilots. Their states are never read here."""
