"""Jobs and pilots as documents."""
