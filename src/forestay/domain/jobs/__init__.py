"""Jobs: their documents, their lifecycle, who claims them, and their story."""
