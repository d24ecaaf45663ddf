"""`forestay demo`: what each of the five papers contributes, played on real processes of this machine."""
