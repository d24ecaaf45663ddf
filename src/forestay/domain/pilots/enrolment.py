"""An enrolment: a pilot's right to register once, by a secret of which only the digest is stored.

It is bound to a site and, if a site agent made it, to one launch. The pilot sends a number that it has generated (the nonce) with
the secret: with the same number it may repeat the request for a few minutes if the answer was lost; nobody else can use the secret
again, not even someone who has read it from the pilot's file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

REPEAT = 15 * 60 * 1000
"""Milliseconds for which the enrolled pilot may repeat its request; later it has only its own token."""
LONGEST = 30 * 86_400
"""The longest validity of a secret in seconds: a batch job can wait in its queue for weeks."""
MARK = "fse-"
"""The prefix of a secret, which distinguishes it from a token."""


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One secret's right, used or not."""

    tenant: str
    site: str
    launch: str
    """Empty: made by hand, for the first pilot of the site that uses it."""
    by: str
    expires: int
    """Milliseconds since 1970."""
    pilot: str = ""
    """The pilot that enrolled; empty if none has."""
    nonce: str = ""
    """The digest of the number of the pilot that used it."""
    used: int = 0
    """When; 0 while it is not. A used one without a pilot was used to say that the machine is not fit."""
    owner: str = ""
    """Whose jobs alone its pilot may have; empty: those of all."""

    def as_plain(self) -> dict[str, object]:
        own: dict[str, object] = {"owner": self.owner} if self.owner else {}
        return own | {
            "site": self.site,
            "launch": self.launch,
            "by": self.by,
            "expires": self.expires,
            "pilot": self.pilot,
            "nonce": self.nonce,
            "used": self.used,
        }

    @classmethod
    def from_plain(cls, tenant: str, body: Mapping[str, object]) -> Enrolment:
        return cls(
            tenant,
            str(body["site"]),
            str(body["launch"]),
            str(body["by"]),
            int(str(body["expires"])),
            str(body["pilot"]),
            str(body["nonce"]),
            int(str(body["used"])),
            str(body.get("owner", "")),
        )


@dataclass(frozen=True, slots=True)
class EnrolmentCandidate:
    """Who asks to enrol."""

    pilot: str
    """The name it would get."""
    nonce: str
    site: str
    """Empty: not stated."""
    launch: str


@dataclass(frozen=True, slots=True)
class NotGood:
    """The secret was used, has expired, or never existed; the caller is not told which."""


@dataclass(frozen=True, slots=True)
class ForAnother:
    """The secret is valid, but for another site or launch."""

    reason: str


def redeem(enrolment: Enrolment, who: EnrolmentCandidate, *, now: int) -> Enrolment | NotGood | ForAnother:
    """The enrolment used by a pilot; the same result when that pilot repeats it."""
    if enrolment.used:
        return enrolment if enrolment.pilot and _same(enrolment, who.nonce, now) else NotGood()
    refusal = status(enrolment, site=who.site, launch=who.launch, now=now)
    if refusal is not None:
        return refusal
    return replace(enrolment, pilot=who.pilot, nonce=digest(who.nonce), used=now)


def give_up(enrolment: Enrolment, who: EnrolmentCandidate, *, now: int) -> Enrolment | NotGood | ForAnother:
    """The enrolment after a pilot has reported that its machine is unfit.

    An enrolment for a launch is used up by that: its batch job ends, and nobody else needs it. One made by hand stays
    valid, since its maker fixes the machine and tries again.
    """
    if enrolment.used:
        return enrolment if not enrolment.pilot and _same(enrolment, who.nonce, now) else NotGood()
    refusal = status(enrolment, site=who.site, launch=who.launch, now=now)
    if refusal is not None:
        return refusal
    return replace(enrolment, nonce=digest(who.nonce), used=now) if enrolment.launch else enrolment


def _same(enrolment: Enrolment, nonce: str, now: int) -> bool:
    return enrolment.nonce == digest(nonce) and now < enrolment.used + REPEAT


def status(enrolment: Enrolment, *, site: str, launch: str, now: int) -> NotGood | ForAnother | None:
    """Why an unused secret does not admit this candidate; None if it does."""
    if enrolment.used or now >= enrolment.expires:
        return NotGood()
    if site and site != enrolment.site:
        return ForAnother(f"the enrolment secret is for site {enrolment.site}, not {site}")
    if enrolment.launch and launch != enrolment.launch:
        return ForAnother("the enrolment secret belongs to another launch")
    return None


def digest(text: str) -> str:
    """The stored form of a secret. It has 256 random bits, so that a plain digest is enough."""
    return hashlib.sha256(text.encode()).hexdigest()
