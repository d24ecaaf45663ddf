"""Pilots: enrolment, heartbeats, draining, revocation, and detection of dead ones."""
