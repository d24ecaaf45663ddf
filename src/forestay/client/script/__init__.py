"""Scripts and Temporal workers whose failures are reported and answered."""
