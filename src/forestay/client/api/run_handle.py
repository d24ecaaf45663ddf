"""A handle for a run: start a flow, follow it, wait for it. In a notebook it shows the progress and a picture of the flow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forestay.client.api.answers import RUN_WELL
from forestay.client.api.forestay_client import ForestayClient
from forestay.client.transport.errors import ClientError, TimedOut
from forestay.client.transport.settings import find_settings
from forestay.formats.flows.flow_picture import picture_of_text
from forestay.formats.text.progress_html import progress_html

if TYPE_CHECKING:
    from forestay.client.api.schemas import RunDetails

ENDED = frozenset({"completed", "forced_complete", "failed", "cancelled", "skipped"})


class RunFailed(ClientError):
    """The run did not complete."""

    def __init__(self, run: RunDetails) -> None:
        super().__init__(f"run {run['id']} of {run['name']} was {run['state']}: {run['reason'] or 'no reason given'}")
        self.run = run


class RunHandle:
    """One run. Nothing is cached: every property asks the server."""

    def __init__(self, client: ForestayClient, run: str) -> None:
        self.id = run
        self._client = client
        self._text: str | None = None

    def look(self) -> RunDetails:
        """The present state of the run, with its tasks."""
        return self._client.run(self.id)

    @property
    def state(self) -> str:
        return self.look()["state"]

    def wait(self, timeout: float | None = None, *, sleep: Callable[[float], None] = time.sleep) -> RunDetails:
        """The run when it has ended, however it did; `TimedOut` if that takes longer."""
        give_up = None if timeout is None else time.monotonic() + timeout
        pause = 0.1
        while True:
            run = self.look()
            if run["ended"] is not None:
                return run
            if give_up is not None and time.monotonic() + pause > give_up:
                raise TimedOut(f"run {self.id} is still {run['state']}")
            sleep(pause)
            pause = min(5.0, pause * 1.5)

    def result(self, timeout: float | None = None) -> dict[str, object]:
        """The outputs of the run, when it has completed; `RunFailed` if it did not."""
        run = self.wait(timeout)
        if run["state"] not in RUN_WELL:
            raise RunFailed(run)
        return run["outputs"]

    def verb(self, kind: str, task: str = "", **more: Any) -> None:
        """Steer the run or one of its tasks: ``suspend``, ``continue``, ``remove`` and so on; see the HTTP interface."""
        self._client.verb(self.id, kind, task=task, **more)

    def picture(self) -> str:
        """The flow with its tasks, as SVG."""
        return self._picture(self.look())

    def _picture(self, run: RunDetails) -> str:
        if self._text is None:
            self._text = str(self._client.flow(run["version"])["text"])
        return picture_of_text(self._text, _tasks(run), title=run["name"])

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"

    def _repr_html_(self) -> str:
        try:
            run = self.look()
            picture = self._picture(run)
        except ClientError as error:
            return progress_html(f"run {self.id}", well=0, bad=0, count=0, words=str(error))
        tasks = run["tasks"]
        good = sum(1 for task in tasks if task["state"] in ENDED - {"failed"})
        bad = sum(1 for task in tasks if task["state"] == "failed")
        words = run["state"] + (f": {run['reason']}" if run["reason"] else "")
        if run["outputs"]:
            words += f"; outputs {json.dumps(run['outputs'])[:500]}"
        return progress_html(
            f"{run['name']} {self.id}", well=good, bad=bad, count=len(tasks), words=words, picture=picture
        )


def _tasks(run: RunDetails) -> list[Mapping[str, Any]]:
    return [dict(task) for task in run["tasks"]]


def start_flow(
    flow: str | Path,
    params: Mapping[str, object] | None = None,
    *,
    client: ForestayClient | None = None,
    key: str | None = None,
) -> RunHandle:
    """Start a run: of a flow in a YAML file or text, of a Python flow by its name, or of a stored flow by its version.

    Without `client` the server and token are found as the command line finds them. With a `key` a repeat gives the same run.
    """
    if client is None:
        settings = find_settings()
        client = ForestayClient(settings.server.value, settings.token.value)
    if isinstance(flow, Path) or flow.endswith((".yaml", ".yml", ".json")):
        flow = Path(flow).read_text(encoding="utf-8")
    if "\n" in flow or "{" in flow:
        flow = client.store_flow(flow)["version"]
    return RunHandle(client, client.start_run(flow, params, key=key)["id"])
