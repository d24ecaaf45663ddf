"""Which pilot gets which job."""
