"""What a domain offers, as tags of its service information: named texts that any client of the service can read."""

from __future__ import annotations

from collections.abc import Mapping

from forestay.domain.peers.routing import Offer

STAMP = "forestay.stamp"
"""The time of the domain's clock, for leases; see `domain.peers.peer`."""
WHOLE = ("cpus", "memory", "gpus", "slots", "free", "queued")
MOST = 10**15


def offer_tags(offer: Offer, stamp: int) -> dict[str, str]:
    """The present capabilities and capacity as tags."""
    tags = {f"forestay.{name}": str(getattr(offer, name)) for name in WHOLE}
    labels = {"forestay.labels": ",".join(sorted(offer.labels))} if offer.labels else {}
    return tags | labels | {"forestay.turn": f"{offer.turn:.3f}", STAMP: str(stamp)}


def offer_from_tags(name: str, tags: Mapping[str, object], *, cost: float = 1.0) -> Offer:
    """The offer in another domain's tags; missing and invalid values count as nothing."""
    cpus, memory, gpus, slots, free, queued = (_whole(tags.get(f"forestay.{other_name}")) for other_name in WHOLE)
    labels = frozenset(filter(None, str(tags.get("forestay.labels") or "")[:10_000].split(",")))
    turn = _turn(tags.get("forestay.turn"))
    return Offer(name, cpus, memory, gpus, slots, free, queued, turn=turn, labels=labels, cost=cost)


def stamp_from_tags(tags: Mapping[str, object]) -> int:
    """The stamp; 0 if there is none."""
    return _whole(tags.get(STAMP))


def _whole(text: object) -> int:
    returned_text = str(text)
    return (
        min(MOST, int(returned_text))
        if returned_text.isascii() and returned_text.isdigit() and len(returned_text) <= 18
        else 0
    )


def _turn(text: object) -> float:
    try:
        return min(1e9, max(0.01, float(str(text))))
    except ValueError:
        return 60.0
