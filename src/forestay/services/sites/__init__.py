"""Sites: the batch systems that pilots are sent to, and how many are sent."""
