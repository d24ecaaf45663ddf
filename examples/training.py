"""A Python flow: training with checkpoints. Each job trains some epochs from the model that the last one left, and leaves its own.

A job that dies is tried again from the last model, not from the beginning; a loss that no longer falls ends the training early.
"""

from __future__ import annotations

from typing import Any

from forestay.flows import checkpoint, flow, job, restored

TRAIN = """
from=${1:-}; epochs=$2
if [ -n "$from" ]; then loss=$(cat "$from"); else loss=1.0; fi
for epoch in $(seq "$epochs"); do loss=$(echo "$loss" | awk '{print $1 * 0.7 + 0.01}'); done
echo "$loss" > model.txt
printf '{"loss": %s}' "$loss" > loss.json
"""


@flow
async def training(epochs: int = 40, per_job: int = 5, patience: float = 0.001) -> dict[str, Any]:
    """Train, some epochs a job, until the loss no longer falls; then export the best model."""
    at: dict[str, Any] = restored({"epoch": 0, "loss": None, "model": ""})
    while at["epoch"] < epochs:
        trained = await job(
            "train",
            ["sh", "-c", TRAIN, "train", at["model"], str(per_job)],
            outputs={"model": "model.txt"},
            result="loss.json",
            memory="512 MiB",
            max_attempts=3,
        )
        loss = trained.result["loss"]
        better = at["loss"] is None or at["loss"] - loss >= patience
        at = {"epoch": at["epoch"] + per_job, "loss": loss, "model": trained.outputs["model"]}
        await checkpoint(at)
        if not better:
            break
    await job("export", ["cp", at["model"], "final.txt"], outputs={"final": "final.txt"})
    return {"epochs": at["epoch"], "loss": at["loss"]}
