"""What users import to talk to a Holdfast server."""
