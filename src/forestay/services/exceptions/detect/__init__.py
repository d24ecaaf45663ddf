"""What happened becomes an exception and an incident."""
