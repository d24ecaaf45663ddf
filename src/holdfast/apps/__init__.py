"""One room per process."""
