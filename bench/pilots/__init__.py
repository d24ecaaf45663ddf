"""The experiments of the paper on pilots and caches: simulated at its size and far beyond, and run for real at a small one."""
