"""Batch systems through PSI/J: what submits and cancels pilots. How they ended is never asked here."""
