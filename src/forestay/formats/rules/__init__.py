"""Rules, packs, evidence and incidents as documents."""
