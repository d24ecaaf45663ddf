"""The page "Proof": every figure of the docs that a script can write, from what the benchmarks left in bench/results."""
