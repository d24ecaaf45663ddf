"""What every request passes: limits, authentication, errors, streaming."""
