"""Files brought in and taken out."""
