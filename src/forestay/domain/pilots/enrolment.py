"""An enrolment: a pilot's right to register once, by a secret of which only the digest is stored.

It is bound to a site and, if a site agent made it, to one launch. The pilot sends a number of its own making (the nonce) with
the secret: with the same number it may ask again when the answer was lost, for a few minutes; nobody else can use the secret
once more, not even one who has read it from the pilot's file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

REPEAT = 15 * 60 * 1000
"""Milliseconds in which the pilot that was let in may ask again; later its own token stands for it."""
LONGEST = 30 * 86_400
"""Seconds that a secret may be good: a batch job can wait in its queue for weeks."""
MARK = "fse-"
"""How a secret begins, so that it is told from a token."""


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One secret's right, used or not."""

    tenant: str
    site: str
    launch: str
    """Empty: made by hand, for whichever pilot of the site comes first."""
    by: str
    expires: int
    """Milliseconds since 1970."""
    pilot: str = ""
    """Who was let in; empty while nobody was."""
    nonce: str = ""
    """The digest of the number of the pilot that used it."""
    used: int = 0
    """When; 0 while it is not. A used one without a pilot was used to say that the machine is not fit."""

    def as_plain(self) -> dict[str, object]:
        return {
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
        )


@dataclass(frozen=True, slots=True)
class EnrolmentCandidate:
    """Who asks to enrol."""

    pilot: str
    """The name it would get."""
    nonce: str
    site: str
    """Empty: it does not say."""
    launch: str


@dataclass(frozen=True, slots=True)
class NotGood:
    """The secret was used, has expired, or never existed; the caller does not learn which."""


@dataclass(frozen=True, slots=True)
class ForAnother:
    """The secret is good, but for another site or launch."""

    reason: str


def redeem(enrolment: Enrolment, who: EnrolmentCandidate, *, now: int) -> Enrolment | NotGood | ForAnother:
    """The enrolment as used by that pilot; the same again for the pilot that used it."""
    if enrolment.used:
        return enrolment if enrolment.pilot and _same(enrolment, who.nonce, now) else NotGood()
    refusal = status(enrolment, site=who.site, launch=who.launch, now=now)
    if refusal is not None:
        return refusal
    return replace(enrolment, pilot=who.pilot, nonce=digest(who.nonce), used=now)


def give_up(enrolment: Enrolment, who: EnrolmentCandidate, *, now: int) -> Enrolment | NotGood | ForAnother:
    """The enrolment after a pilot has said that its machine is not fit.

    One of a launch is used up by that: its batch job ends, and nobody else has any business with it. One made by hand stays
    good, since whoever made it fixes the machine and tries again.
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
    """Why an unused secret lets nobody in from there; None if it does."""
    if enrolment.used or now >= enrolment.expires:
        return NotGood()
    if site and site != enrolment.site:
        return ForAnother(f"the enrolment secret is for site {enrolment.site}, not {site}")
    if enrolment.launch and launch != enrolment.launch:
        return ForAnother("the enrolment secret belongs to another launch")
    return None


def digest(text: str) -> str:
    """What is kept of a secret. It has 256 random bits, so that a plain digest is enough."""
    return hashlib.sha256(text.encode()).hexdigest()
