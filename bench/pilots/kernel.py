"""The simulation once more, in arrays: quick enough for ten million jobs on a hundred thousand pilots.

`simulation` drives the servers' own matching and the pilots' own caches; here the rules that they come to with look-ahead and re-staging are written down by themselves, for W1, W2 and W3:

- a pilot that is free takes a job whose files its host has, then one that is to meet another on its host, then the next new one, and only if there is none one that waits for another host;
- a job whose files are there waits for a pilot of their host, unless one is idle elsewhere;
- a host keeps what was read and written last.

So it counts only where it agrees with that simulation (`scale_arrays`). Nothing here is particular to a compiler: the functions are made by `make`, which is given what compiles them, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from math import log, sqrt
from typing import Any, NamedTuple

Ints = MutableSequence[int]
Floats = MutableSequence[float]
Uniform = Callable[[int, int, int, int], float]

CHAIN, SPLIT, MERGE = 1, 2, 3
COMPUTE, WRITE, READ = 0, 1, 2


class Kernel(NamedTuple):
    """The functions, as they were made."""

    run: Callable[..., tuple[float, int, int, int, int, int]]
    """Makespan, hits, reads of files that jobs wrote, reads from storage, files let go, events."""
    bound: Callable[..., float]


def make(uniform: Uniform, compiled: Callable[[Any], Any]) -> Kernel:
    """The kernel over these draws, each function given to `compiled`."""

    @compiled
    def normal(p: float) -> float:
        """The inverse of the normal distribution (Wichura, algorithm AS 241), as in Python's library."""
        q = p - 0.5
        if abs(q) <= 0.425:
            r = 0.180625 - q * q
            num = (((((((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r + 6.7265770927008700853e4) * r + 4.5921953931549871457e4) * r
                     + 1.3731693765509461125e4) * r + 1.9715909503065514427e3) * r + 1.3314166789178437745e2) * r + 3.3871328727963666080e0) * q  # fmt: skip
            den = (((((((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r + 3.9307895800092710610e4) * r + 2.1213794301586595867e4) * r
                     + 5.3941960214247511077e3) * r + 6.8718700749205790830e2) * r + 4.2313330701600911252e1) * r + 1.0)  # fmt: skip
            return num / den
        r = p if q <= 0.0 else 1.0 - p
        r = sqrt(-log(r))
        if r <= 5.0:
            r -= 1.6
            num = (((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r + 2.41780725177450611770e-1) * r + 1.27045825245236838258e0) * r
                     + 3.64784832476320460504e0) * r + 5.76949722146069140550e0) * r + 4.63033784615654529590e0) * r + 1.42343711074968357734e0)  # fmt: skip
            den = (((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1) * r
                     + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0) * r + 2.05319162663775882187e0) * r + 1.0)  # fmt: skip
        else:
            r -= 5.0
            num = (((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 1.24266094738807843860e-3) * r + 2.65321895265761230930e-2) * r
                     + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0) * r + 5.46378491116411436990e0) * r + 6.65790464350110377720e0)  # fmt: skip
            den = (((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4) * r
                     + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r + 5.99832206555887937690e-1) * r + 1.0)  # fmt: skip
        return -num / den if q < 0.0 else num / den

    @compiled
    def gauss(u: float, mean: float, spread: float) -> float:
        found_gauss: float = mean * max(0.05, 1.0 + spread * normal(u))
        return found_gauss

    @compiled
    def until_well(seed: int, job: int, what: int, mean: float, spread: float, failure: float) -> float:
        total: float = 0.0
        again = 0
        while True:
            total += gauss(uniform(seed, job, 2 * what + 1000, again), mean, spread)
            if failure == 0.0 or uniform(seed, job, 2 * what + 1001, again) >= failure:
                return total
            again += 1

    @compiled
    def bound(
        shape: int, first: int, jobs: int, pilots: int, seed: int, luck: Sequence[float], written: Floats
    ) -> float:
        """The clairvoyant bound (see `bound`): the longest path, and the work of all jobs on all pilots."""
        computing, spread, access, failure, hit = luck[0], luck[1], luck[2], luck[3], luck[4]
        work, longest = 0.0, 0.0
        for job in range(jobs):
            start = 0.0
            took = gauss(uniform(seed, job, COMPUTE, 0), computing, spread)
            took += until_well(seed, job, WRITE, access, spread, failure)
            if job >= first:
                took += hit
                if shape == CHAIN:
                    start = written[job - first]
                elif shape == SPLIT:
                    start = written[(job - first) // 2]
                else:
                    start = max(written[2 * (job - first)], written[2 * (job - first) + 1])
            else:
                written[job] = took
            longest = max(longest, start + took)
            work += took
        return max(longest, work / pilots)

    @compiled
    def up(times: Floats, who: Ints, place: int) -> None:
        """A new entry of the heap rises to where it belongs; of two at one time the one that was made first is ahead."""
        time, number = times[place], who[place]
        while place > 0:
            above = (place - 1) >> 1
            if times[above] <= time:
                break
            times[place], who[place] = times[above], who[above]
            place = above
        times[place], who[place] = time, number

    @compiled
    def down(times: Floats, who: Ints, many: int) -> None:
        """The first entry was replaced by the last: it sinks to where it belongs."""
        time, number, place = times[0], who[0], 0
        while True:
            below = 2 * place + 1
            if below >= many:
                break
            if below + 1 < many and times[below + 1] < times[below]:
                below += 1
            if times[below] >= time:
                break
            times[place], who[place] = times[below], who[below]
            place = below
        times[place], who[place] = time, number

    @compiled
    def use(kept: Ints, count: Ints, host: int, room: int, file: int) -> bool:
        """Whether the host has the file; if so, it was used last of all."""
        start, many = host * room, count[host]
        for place in range(start, start + many):
            if kept[place] == file:
                for other in range(place, start + many - 1):
                    kept[other] = kept[other + 1]
                kept[start + many - 1] = file
                return True
        return False

    @compiled
    def keep(kept: Ints, count: Ints, host: int, room: int, file: int) -> int:
        """The host keeps a file more; how many it lets go for that."""
        start, many = host * room, count[host]
        if many < room:
            kept[start + many] = file
            count[host] = many + 1
            return 0
        for other in range(start, start + room - 1):
            kept[other] = kept[other + 1]
        kept[start + room - 1] = file
        return 1

    @compiled
    def run(
        shape: int, first: int, jobs: int, pilots: int, slots: int, room: int, seed: int, luck: Sequence[float], order: Sequence[int],
        taken: Ints, came: Ints, link: Ints, at_host: Ints, kept: Ints, count: Ints, heads: Ints, tails: Ints, waiting: Ints, aside: Ints,
        idle: Ints, stack: Ints, doing: Ints, times: Floats, who: Ints, due: Floats, due_job: Ints,
    ) -> tuple[float, int, int, int, int, int]:  # fmt: skip
        """One run. The arrays are given, so that whoever calls says of what they are: all zero, but `heads`, `tails`, `link` and `at_host`, which are -1."""
        computing, spread, access, failure, hit, claim, release = (
            luck[0],
            luck[1],
            luck[2],
            luck[3],
            luck[4],
            luck[5],
            luck[6],
        )
        hosts = pilots // slots
        fresh = 0  # the next job of the first step
        many = 0  # entries of the heap
        due_first = due_last = 0  # a queue that goes round: what is ready after its release, in order
        around = len(due)
        queued = first_queued = 0  # jobs that wait for a host, in the order in which they came
        asides = first_aside = 0  # jobs that are to meet another one
        stacked = first_stacked = 0  # pilots in the order in which they became idle; a queue that goes round
        left, now = jobs, 0.0
        hits = reads = storage_reads = evicted = events = 0
        asking = 0  # of the pilots that ask at the beginning
        while left > 0:
            pilot = job = -1
            if asking < pilots:
                pilot = order[asking]
                asking += 1
            elif due_first != due_last and (many == 0 or due[due_first] <= times[0]):
                now, ready = due[due_first], due_job[due_first]
                due_first = (due_first + 1) % around
                events += 1
                host = at_host[ready]
                for number in range(host * slots, (host + 1) * slots):
                    if idle[number]:
                        pilot, job = number, ready
                        break
                while pilot < 0 and first_stacked < stacked:  # who has been idle for the longest time
                    if idle[stack[first_stacked % len(stack)]]:
                        pilot, job = stack[first_stacked % len(stack)], ready
                    first_stacked += 1
                if pilot < 0:
                    if tails[host] < 0:
                        heads[host] = ready
                    else:
                        link[tails[host]] = ready
                    tails[host] = ready
                    waiting[queued] = ready
                    queued += 1
                    continue
            else:
                now, pilot = times[0], who[0]
                many -= 1
                if many:
                    times[0], who[0] = times[many], who[many]
                    down(times, who, many)
                events += 1
                ended, host = doing[pilot], pilot // slots
                left -= 1
                evicted += keep(kept, count, host, room, ended)
                if ended < first:
                    if shape == CHAIN:
                        low, high, wanted = first + ended, first + ended + 1, 1
                    elif shape == SPLIT:
                        low, high, wanted = first + 2 * ended, first + 2 * ended + 2, 1
                    else:
                        low, high, wanted = first + ended // 2, first + ended // 2 + 1, 2
                    for reader in range(low, high):
                        came[reader - first] += 1
                        at_host[reader] = host
                        if came[reader - first] == wanted:
                            due[due_last], due_job[due_last] = now + release, reader
                            due_last = (due_last + 1) % around
            host = pilot // slots
            if job < 0:  # it asks
                while heads[host] >= 0 and job < 0:
                    head = heads[host]
                    heads[host] = link[head]
                    if heads[host] < 0:
                        tails[host] = -1
                    if not taken[head]:
                        job = head
                while heads[hosts + host] >= 0 and job < 0:
                    head = heads[hosts + host]
                    heads[hosts + host] = link[head]
                    if heads[hosts + host] < 0:
                        tails[hosts + host] = -1
                    if not taken[head]:
                        job = head
                while job < 0 and fresh < first:
                    if not taken[fresh] and at_host[fresh] < 0:  # else it is to meet another one on a host
                        job = fresh
                    fresh += 1
                while job < 0 and first_queued < queued:
                    if not taken[waiting[first_queued]]:
                        job = waiting[first_queued]
                    first_queued += 1
                while job < 0 and first_aside < asides:
                    if not taken[aside[first_aside]]:
                        job = aside[first_aside]
                    first_aside += 1
                if job < 0:
                    idle[pilot] = 1
                    stack[stacked % len(stack)] = pilot
                    stacked += 1
                    continue
            idle[pilot] = 0
            taken[job] = 1
            if shape == MERGE and job < first:
                other = job ^ 1
                if not taken[other] and at_host[other] < 0:
                    at_host[other] = host
                    place = hosts + host
                    if tails[place] < 0:
                        heads[place] = other
                    else:
                        link[tails[place]] = other
                    tails[place] = other
                    aside[asides] = other
                    asides += 1
            reading = 0.0
            if job >= first:
                for place in range(2 if shape == MERGE else 1):
                    file = (
                        job - first
                        if shape == CHAIN
                        else (job - first) // 2
                        if shape == SPLIT
                        else 2 * (job - first) + place
                    )
                    reads += 1
                    if use(kept, count, host, room, file):
                        hits += 1
                        reading = max(reading, hit)
                    else:
                        storage_reads += 1
                        reading = max(reading, until_well(seed, job, READ + place, access, spread, failure))
                        evicted += keep(kept, count, host, room, file)
            took = reading + gauss(uniform(seed, job, COMPUTE, 0), computing, spread)
            took += until_well(seed, job, WRITE, access, spread, failure)
            doing[pilot] = job
            times[many], who[many] = now + claim + took, pilot
            up(times, who, many)
            many += 1
        return now, hits, reads, storage_reads, evicted, events

    return Kernel(run, bound)
