"""A parameter sweep: the same function over a grid, as jobs on whatever pilots there are.

forestay dev                       # in another terminal
python examples/parameter_sweep.py
"""

from __future__ import annotations

import math
import random
import sys
from concurrent.futures import as_completed
from itertools import product

from forestay.client import Executor


def decay(rate: float, steps: int, seed: int) -> float:
    """The mean of a noisy decay; stands for whatever takes minutes in your laboratory."""
    noise = random.Random(seed)  # noqa: S311 - a simulation
    level, total = 1.0, 0.0
    for _ in range(steps):
        level *= math.exp(-rate) * noise.uniform(0.98, 1.02)
        total += level
    return total / steps


def main() -> None:
    grid = list(product([0.001, 0.01, 0.1], [100, 1000], range(5)))
    with Executor(max_attempts=3) as pool:
        futures = {pool.submit(decay, *point): point for point in grid}
        for done, _ in enumerate(as_completed(futures), 1):
            sys.stderr.write(f"\r{done} of {len(grid)}")
        sys.stderr.write("\n")
    best = max(futures, key=lambda future: future.result())
    rate, steps, seed = futures[best]
    sys.stdout.write(f"largest mean {best.result():.4f} at rate {rate}, {steps} steps, seed {seed}\n")


if __name__ == "__main__":
    main()
