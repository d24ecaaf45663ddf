"""A Python flow: refine in parallel until it has converged, as one writes it down.

Put the file into the folder that FORESTAY_FLOWS names, and start it by its name:

forestay run until_converged --param tolerance=0.001
"""

from __future__ import annotations

from typing import Any

from forestay.flows import JobFailed, checkpoint, flow, job, restored, scatter

TRY = """echo "$1 $2" | awk '{printf "{\\"x\\": %.6f, \\"error\\": %.6f}", $1, ($1 - 0.73)^2}' > try.json"""


@flow
async def until_converged(tolerance: float = 0.0001, width: int = 5, at_most: int = 50) -> dict[str, Any]:
    """Look for the smallest error on a grid, then on a finer one around the best, until it is small enough."""
    at: dict[str, Any] = restored({"x": 0.5, "step": 0.25, "error": 1.0, "rounds": 0})
    while at["error"] > tolerance and at["rounds"] < at_most:
        grid = [round(at["x"] + at["step"] * (place - width // 2), 6) for place in range(width)]
        tries = await scatter(
            "try", ["sh", "-c", TRY, "try", "${x}"], {"x": grid}, result="try.json", tolerate=1, max_attempts=2
        )
        best = min((result for result in tries.results if result), key=lambda result: result["error"])
        at = {"x": best["x"], "step": at["step"] / 2, "error": best["error"], "rounds": at["rounds"] + 1}
        await checkpoint(at)
    if at["error"] > tolerance:
        raise RuntimeError(f"not converged after {at['rounds']} rounds: the error is {at['error']}")
    try:
        await job("report", f"echo converged to {at['x']}, an error of {at['error']}", max_attempts=3)
    except JobFailed as error:
        return {"x": at["x"], "rounds": at["rounds"], "not reported": error.reason}
    return {"x": at["x"], "rounds": at["rounds"]}
