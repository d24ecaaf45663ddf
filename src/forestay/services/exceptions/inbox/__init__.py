"""What needs a person, and what people do about it."""
