"""What needs a person, and the actions that people take."""
