"""Brakes for handlers: every act asks here first, and has its tokens from buckets that all handlers share.

A bucket is a slip for each (tenant, limit). A handler leases what a batch of acts needs, and a bunch beside it, by one version-checked write of all
buckets, and spends the bunch later, so that most single acts lease nothing. Tokens that are not spent within the lease come back by themselves; a handler that dies takes its lease with it for that time and no
longer. A write without a clear answer is given up: if it took place, its tokens are lost for the time of the lease, never spent twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import cast

from forestay.domain.exceptions.safeguards import storm
from forestay.domain.exceptions.safeguards.brakes import (
    BrakePolicy,
    Brakes,
    BucketName,
    Coins,
    Granted,
    Meter,
    Refused,
    Request,
    prices,
    put_in,
    spend,
)
from forestay.domain.exceptions.safeguards.permit_batch import plan
from forestay.domain.exceptions.safeguards.rate_limit import Bucket, Lease, settle, with_limit
from forestay.domain.exceptions.safeguards.storm import Sign
from forestay.ports.clock import Clock, Ids
from forestay.ports.documents import Slip, SlipStore, StoredSlip
from forestay.ports.errors import PortError, Transient
from forestay.ports.jobs.job_store import Version, Written
from forestay.services.exceptions.safeguards import keep_stops, keep_storms
from forestay.services.exceptions.safeguards.keep_storms import KeepStorms

KIND = "brake"
TRIES = 50
LONGEST_NAME = 300


@dataclass(slots=True)
class LeaseBrakes:
    """The service; one for each handler."""

    slips: SlipStore
    storms: KeepStorms
    clock: Clock
    ids: Ids
    policy: BrakePolicy = field(default_factory=BrakePolicy)
    granted: int = 0
    refused: int = 0
    leases: int = 0
    """How often tokens were leased, for metrics and tests."""
    _purse: Mapping[BucketName, tuple[Coins, ...]] = field(default_factory=lambda: MappingProxyType({}))
    _leased: dict[str, float] = field(default_factory=dict)
    """When each lease was asked for, by this process's own time."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def permit(
        self, requests: Sequence[Request], noticed: Sequence[tuple[str, Sign]] = ()
    ) -> Sequence[Granted | Refused]:
        """Ask for acts; an answer each, in order. `Transient` if the store does not answer: then none may be done.

        `noticed`: faults, each with its tenant, that are counted for storms by the same write, before anything is answered; each is given once. An act that
        is granted has used its tokens up, whether it is then done or not. Everything is read at once and written at once.
        """
        answers: dict[int, Granted | Refused] = {}
        async with self._asking:
            for tenant in dict.fromkeys([*(one.tenant for one in requests), *(tenant for tenant, _ in noticed)]):
                places = [place for place, one in enumerate(requests) if one.tenant == tenant]
                signs = [sign for whose, sign in noticed if whose == tenant]
                found = await self._permit(tenant, [requests[place] for place in places], signs)
                answers |= dict(zip(places, found, strict=True))
        out = [answers[place] for place in range(len(requests))]
        self.granted += sum(1 for one in out if isinstance(one, Granted))
        self.refused += sum(1 for one in out if isinstance(one, Refused))
        return out

    async def give_back(self) -> None:
        """Give back what was not spent: for a handler that ends. What cannot be given back comes back by itself."""
        async with self._asking:
            purse, self._purse = self._purse, MappingProxyType({})
            for name, coins in purse.items():
                try:
                    await self._settle(name, coins)
                except PortError:
                    return

    async def buckets(self, tenant: str) -> Mapping[BucketName, Bucket]:
        """The buckets of a tenant that were ever leased from, and the one for all; up to a second old."""
        found = await self.slips.find(KIND)
        named = {_name(one): _bucket(one) for one in found if one.slip.tenant in (tenant, "")}
        return {name: with_limit(bucket, self.policy.limit(name.meter)) for name, bucket in named.items()}

    # -- one tenant's acts -------------------------------------------------------------------------------------

    async def _permit(
        self, tenant: str, requests: Sequence[Request], signs: Sequence[Sign]
    ) -> Sequence[Granted | Refused]:
        names = dict.fromkeys(name for one in requests for name, _ in prices(one))
        slips = {name: slip_of(name) for name in names}
        group = keep_storms.name_of(tenant)
        # The slips are written together and each for itself: when a bucket conflicts, the storms may stand already.
        batch = self.ids.claim()
        for tried in range(TRIES):
            began = self.clock.monotonic()
            found = await self.slips.get([*keep_stops.names(tenant), group, *slips.values()])
            self._throw_away()
            now = self.clock.now()
            before = self.storms.read(found.get(group))
            storms = storm.notice(before, signs, now, batch=batch) if signs else before
            brakes = Brakes(self.policy, keep_stops.stops_in(found.values()), storms, self._purse)
            buckets = {name: self._bucket(name, found.get(slip)) for name, slip in slips.items()}
            planned = plan(brakes, buckets, requests, now, {name: self.ids.claim() for name in names})
            wanted = [_slip(name, bucket, found.get(slips[name])) for name, (bucket, _) in planned.leases.items()]
            if planned.storms != before:
                wanted.append(self.storms.slip(tenant, planned.storms, found.get(group)))
            if await self._write(wanted, planned.leases, now, began):
                self._spend(planned.needs, now)
                return planned.answers
            await asyncio.sleep(0.001 * min(tried, 20))  # others lease from the same buckets
        raise Transient("too many ask to act at once; ask again")

    async def _write(
        self,
        slips: Sequence[tuple[Slip, Version | None]],
        leases: Mapping[BucketName, tuple[Bucket, Lease]],
        now: int,
        began: float,
    ) -> bool:
        """Write what was planned; True if all of it stands. What was leased is in the purse in any case."""
        results = await self.slips.put(slips) if slips else ()
        for (name, (_, leased)), result in zip(leases.items(), results, strict=False):
            if isinstance(result, Written):
                self.leases += 1
                own = replace(leased, until=min(leased.until, now + self.policy.lasts))
                self._leased[own.id] = began
                self._purse = put_in(Brakes(purse=self._purse), name, own, now).purse
        return all(isinstance(result, Written) for result in results)

    def _spend(self, needs: Mapping[BucketName, int], now: int) -> None:
        spent = {name: spend(self._purse[name], tokens, now) for name, tokens in needs.items()}
        self._purse = MappingProxyType({**self._purse, **spent})

    # -- buckets -----------------------------------------------------------------------------------------------

    def _bucket(self, name: BucketName, stored: StoredSlip | None) -> Bucket:
        limit = self.policy.limit(name.meter)
        return with_limit(_bucket(stored), limit) if stored is not None else Bucket(limit)

    async def _settle(self, name: BucketName, coins: Iterable[Coins]) -> None:
        slip = slip_of(name)
        for _ in range(TRIES):
            stored = (await self.slips.get([slip])).get(slip)
            if stored is None:
                return
            bucket = _bucket(stored)
            for one in coins:
                spent = one.lease.tokens - one.left
                bucket = settle(bucket, name=one.lease.id, spent=spent, now=self.clock.now())
            (result,) = await self.slips.put([_slip(name, bucket, stored)])
            if isinstance(result, Written):
                return

    def _throw_away(self) -> None:
        """Forget leases that are over by this process's own time, whatever the clock on the wall says."""
        steady = self.clock.monotonic()
        lasts = self.policy.lasts / 1000
        self._leased = {lease: began for lease, began in self._leased.items() if steady - began < lasts}
        kept = {
            name: tuple(one for one in coins if one.lease.id in self._leased) for name, coins in self._purse.items()
        }
        self._purse = MappingProxyType({name: coins for name, coins in kept.items() if coins})


def slip_of(name: BucketName) -> str:
    text = f"brake:{name}"
    if len(text.encode()) <= LONGEST_NAME:
        return text
    return f"brake:{hashlib.sha256(text.encode()).hexdigest()}"


def _slip(name: BucketName, bucket: Bucket, stored: StoredSlip | None) -> tuple[Slip, Version | None]:
    body = {"name": list(name), **bucket.as_plain()}
    return Slip(slip_of(name), name.tenant, KIND, body), stored.version if stored is not None else None


def _bucket(stored: StoredSlip) -> Bucket:
    return Bucket.from_plain(stored.slip.body)


def _name(stored: StoredSlip) -> BucketName:
    meter, tenant, key = cast("Sequence[str]", stored.slip.body["name"])
    return BucketName(Meter(meter), tenant, key)
