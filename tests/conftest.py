"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A machine that is busy is no reason to fail: what is slow there is seen in the tiers' times.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# A gate says the same of the same commit; new examples are looked for in everybody else's runs, and kept when they fail.
settings.register_profile("gate", settings.get_profile("house"), derandomize=True)
settings.load_profile("gate" if os.environ.get("CI") else "house")
