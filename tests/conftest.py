"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A machine that is busy is no reason to fail: what is slow there is seen in the tiers' times.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("house")
