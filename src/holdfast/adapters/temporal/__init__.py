"""Cases on Temporal."""
