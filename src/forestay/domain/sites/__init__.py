"""Batch systems: launches, states, pace, and how many pilots a site is sent."""
