"""Jobs of several nodes: their ranks, what starts them, and how they end together."""
