"""What Temporal replays: thin loops around the domain. Imports the domain and `temporalio` only."""
