"""What is checked: the protocol within several bounds, and variants of it in each of which one check is missing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """How much may happen. Everything within it is examined."""

    module: str
    sizes: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return ", ".join(f"{size} {name.lower()}" for name, size in self.sizes)


@dataclass(frozen=True, slots=True)
class Variant:
    """The protocol, or the protocol without some of its checks."""

    name: str
    bound: Bound
    without: tuple[str, ...] = ()
    breaks: str = ""
    """The promise that TLC must find broken; empty: none may be."""


CHECKS = {
    "Claims": (
        "ClaimsCheckVersion",
        "ReleasesCheckVersion",
        "ReadsAreConfirmed",
        "VersionsHaveTerm",
        "EndsNameTheClaim",
        "EndsNameTheAttempt",
        "EndsNameTheGeneration",
        "LeaseIsChecked",
        "LeaseCountsFromRequest",
        "RequestsEndBeforeTwoHeartbeats",
    ),
    "Steering": ("SteersElements", "MarksAreChecked"),
}
INVARIANTS = {"Claims": ("NothingBroken", "OverlapsAreRecorded"), "Steering": ("NothingBroken", "NobodyIsLeftHeld")}


def claims(pilots: int, jobs: int, tries: int, faults: int) -> Bound:
    return Bound("Claims", (("Pilots", pilots), ("Jobs", jobs), ("Tries", tries), ("Faults", faults)))


def steering(elements: int, starts: int, faults: int) -> Bound:
    return Bound("Steering", (("Elements", elements), ("Starts", starts), ("Faults", faults)))


SMALL = claims(2, 1, 1, 2)
SMALL_ARRAY = steering(2, 2, 2)

PROTOCOL = (Variant("protocol", SMALL), Variant("protocol", SMALL_ARRAY))
"""In the gate, with the variants of `IN_GATE`: ten seconds of processor time."""
PROTOCOL_FULL = (
    Variant("protocol", claims(3, 2, 1, 2)),
    Variant("protocol", claims(2, 1, 1, 3)),
    Variant("protocol", claims(2, 1, 2, 2)),
    Variant("protocol", steering(3, 3, 3)),
)
"""By command: minutes."""

REDUNDANT = (
    Variant("completion-checks-claim-only", SMALL, ("EndsNameTheAttempt", "EndsNameTheGeneration")),
    Variant("completion-checks-token-only", SMALL, ("EndsNameTheClaim",)),
)
"""Each of the two fences of a completion holds alone: the other is for mistakes that are not in the model."""

NOT_HELD = "a payload began although its claim did not hold the job"
STRAY = "a completion was committed for a claim that did not hold the job"
BAD = (
    Variant("claim-without-version", SMALL, ("ClaimsCheckVersion",), NOT_HELD),
    Variant("claim-trusts-a-read", SMALL, ("ReadsAreConfirmed",), NOT_HELD),
    Variant("version-without-term", SMALL, ("VersionsHaveTerm",), NOT_HELD),
    Variant("release-without-version", SMALL, ("ReleasesCheckVersion",), "a committed completion was overwritten"),
    Variant("completion-without-generation", SMALL, ("EndsNameTheClaim", "EndsNameTheGeneration"), STRAY),
    Variant("completion-without-attempt", SMALL, ("EndsNameTheClaim", "EndsNameTheAttempt"), STRAY),
    Variant("begin-after-lost-lease", SMALL, ("LeaseIsChecked",), NOT_HELD),
    Variant("lease-counts-from-answer", SMALL, ("LeaseCountsFromRequest",), NOT_HELD),
    Variant("answer-after-two-heartbeats", SMALL, ("RequestsEndBeforeTwoHeartbeats",), NOT_HELD),
    Variant(
        "steering-by-base-id",
        SMALL_ARRAY,
        ("SteersElements",),
        "an element that was running was stopped for another one",
    ),
    Variant("steering-without-mark", steering(2, 3, 2), ("MarksAreChecked",), "one order ran an element twice"),
)
IN_GATE = frozenset(
    {"claim-without-version", "release-without-version", "completion-without-generation", "steering-by-base-id"}
)
