"""One room per library; a file bears the name of the port it fills."""
