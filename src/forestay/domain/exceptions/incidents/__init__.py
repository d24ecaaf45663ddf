"""Incidents, their exception types, and what is done where no rule concludes."""
