"""Brakes for handlers: every act asks here first, and has its tokens from buckets that all handlers share.

A bucket is a slip for each (tenant, limit). A handler leases a bunch of tokens by a version-checked write and spends them one by one, so that most acts
write nothing. Tokens that are not spent within the lease come back by themselves; a handler that dies takes its lease with it for that time and no
longer. A write without a clear answer is given up: if it took place, its tokens are lost for the time of the lease, never spent twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import cast

from holdfast.domain.faults.brakes import (
    BrakePolicy,
    Brakes,
    BucketName,
    Coins,
    Granted,
    Meter,
    Refused,
    Request,
    bunch,
    empty,
    in_purse,
    permit,
    put_in,
)
from holdfast.domain.faults.rate_limit import SECOND, Bucket, Empty, Lease, lease, settle, with_limit
from holdfast.domain.faults.storm import Storms
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.errors import PortError, Transient
from holdfast.ports.job_store import Version, Written
from holdfast.ports.slip_store import Slip, SlipStore, StoredSlip
from holdfast.services import keep_stops, keep_storms
from holdfast.services.keep_storms import KeepStorms

KIND = "brake"
TRIES = 50
BELIEVED = 5 * SECOND
"""How long an empty bucket is believed to be empty: another handler may give tokens back before they are due."""
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
    _empty: dict[BucketName, tuple[int, Empty]] = field(default_factory=dict)
    """Buckets that were found empty, and until when that is believed."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def permit(self, requests: Sequence[Request]) -> Sequence[Granted | Refused]:
        """Ask for acts; an answer each, in order. `Transient` if the store does not answer: then none may be done.

        An act that is granted has used its tokens up, whether it is then done or not.
        """
        answers: dict[int, Granted | Refused] = {}
        async with self._asking:
            for tenant in dict.fromkeys(one.tenant for one in requests):
                places = [place for place, one in enumerate(requests) if one.tenant == tenant]
                found = await self._permit(tenant, [requests[place] for place in places])
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

    async def _permit(self, tenant: str, requests: Sequence[Request]) -> Sequence[Granted | Refused]:
        for _ in range(TRIES):
            brakes, version = await self._read(tenant)
            before = brakes.storms
            out: list[Granted | Refused] = []
            for request in requests:
                answer = await self._ask(brakes, request)
                brakes = answer.brakes if isinstance(answer, Granted) else replace(brakes, purse=self._purse)
                # What one request has taken, the next cannot have; kept also when all is asked anew, which wastes and never doubles.
                self._purse = brakes.purse
                out.append(answer)
            if brakes.storms is before or brakes.storms == before:
                return out
            if isinstance(await self.storms.write(tenant, brakes.storms, version), Written):
                return out
        raise Transient("the group of the storm could not be written; ask again")

    async def _read(self, tenant: str) -> tuple[Brakes, Version | None]:
        """The stops and storms at this moment."""
        name = keep_storms.name_of(tenant)
        found = await self.slips.get([*keep_stops.names(tenant), name])
        self._throw_away()
        stored = found.get(name)
        storms: Storms = self.storms.read(stored)
        brakes = Brakes(self.policy, keep_stops.stops_in(found.values()), storms, self._purse)
        return brakes, stored.version if stored is not None else None

    async def _ask(self, brakes: Brakes, request: Request) -> Granted | Refused:
        """Ask until there is an answer; tokens that lack are leased, as long as there are some."""
        while True:
            answer = permit(brakes, request, self.clock.now())
            if isinstance(answer, Granted | Refused):
                return answer
            for name, tokens in answer.tokens:
                found = await self._lease(name, tokens)
                if isinstance(found, Empty):
                    return empty(name, self.policy.limit(name.meter), found)
            brakes = replace(brakes, purse=self._purse)

    # -- buckets -----------------------------------------------------------------------------------------------

    async def _lease(self, name: BucketName, tokens: int) -> Lease | Empty:
        believed = self._empty.get(name)
        now = self.clock.now()
        if believed is not None and now < believed[0] and believed[1].free < tokens:
            return believed[1]
        slip = slip_of(name)
        for tried in range(TRIES):
            now, began = self.clock.now(), self.clock.monotonic()
            stored = (await self.slips.get([slip])).get(slip)
            bucket = with_limit(_bucket(stored), self.policy.limit(name.meter)) if stored else self._full(name)
            least = tokens - in_purse(self._purse, name, now)
            taken = lease(
                bucket,
                name=self.ids.claim(),
                wanted=bunch(self.policy, name, least),
                least=least,
                now=now,
                lasts=self.policy.lasts,
            )
            if isinstance(taken, Empty):
                self._empty[name] = (min(taken.again, now + BELIEVED), taken)
                return taken
            if await self._put(name, taken[0], stored):
                self.leases += 1
                self._empty.pop(name, None)
                own = replace(taken[1], until=min(taken[1].until, now + self.policy.lasts))
                self._leased[own.id] = began
                self._purse = put_in(Brakes(purse=self._purse), name, own, now).purse
                return own
            await asyncio.sleep(0.001 * min(tried, 20))  # others lease from it too
        raise Transient(f"too many lease from {name} at once; ask again")

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
            if await self._put(name, bucket, stored):
                return

    async def _put(self, name: BucketName, bucket: Bucket, stored: StoredSlip | None) -> bool:
        body = {"name": list(name), **bucket.as_plain()}
        slip = Slip(slip_of(name), name.tenant, KIND, body)
        (result,) = await self.slips.put([(slip, stored.version if stored is not None else None)])
        return isinstance(result, Written)

    def _full(self, name: BucketName) -> Bucket:
        return Bucket(self.policy.limit(name.meter))

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


def _bucket(stored: StoredSlip) -> Bucket:
    return Bucket.from_plain(stored.slip.body)


def _name(stored: StoredSlip) -> BucketName:
    meter, tenant, key = cast("Sequence[str]", stored.slip.body["name"])
    return BucketName(Meter(meter), tenant, key)
