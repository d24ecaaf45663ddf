"""Turns failures and events into exceptions and incidents."""
