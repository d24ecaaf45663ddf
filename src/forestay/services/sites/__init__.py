"""Sites: the batch systems to which pilots are submitted, and how many are submitted."""
