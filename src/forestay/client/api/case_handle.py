"""A case in your hands: start a flow, look at it, wait for it. In a notebook it shows how far it is, and a picture of the flow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from forestay.client.api.answers import CASE_WELL, CaseWhole
from forestay.client.api.forestay_client import ForestayClient
from forestay.client.transport.errors import ClientError, TimedOut
from forestay.client.transport.settings import find_settings
from forestay.formats.flows.flow_picture import picture_of_text
from forestay.formats.text.progress_html import progress_html

ENDED = frozenset({"completed", "forced_complete", "failed", "cancelled", "skipped"})


class CaseFailed(ClientError):
    """The case did not complete."""

    def __init__(self, case: CaseWhole) -> None:
        super().__init__(
            f"case {case['id']} of {case['name']} was {case['state']}: {case['reason'] or 'no reason given'}"
        )
        self.case = case


class CaseHandle:
    """One case. Nothing is kept here: what it says, it asks the server for."""

    def __init__(self, client: ForestayClient, case: str) -> None:
        self.id = case
        self._client = client
        self._text: str | None = None

    def look(self) -> CaseWhole:
        """The case as it stands, with its items."""
        return self._client.case(self.id)

    @property
    def state(self) -> str:
        return self.look()["state"]

    def wait(self, timeout: float | None = None, *, sleep: Callable[[float], None] = time.sleep) -> CaseWhole:
        """The case when it has ended, however it did; `TimedOut` if that takes longer."""
        give_up = None if timeout is None else time.monotonic() + timeout
        pause = 0.1
        while True:
            case = self.look()
            if case["ended"] is not None:
                return case
            if give_up is not None and time.monotonic() + pause > give_up:
                raise TimedOut(f"case {self.id} is still {case['state']}")
            sleep(pause)
            pause = min(5.0, pause * 1.5)

    def result(self, timeout: float | None = None) -> dict[str, object]:
        """The outputs of the case, when it has completed; `CaseFailed` if it did not."""
        case = self.wait(timeout)
        if case["state"] not in CASE_WELL:
            raise CaseFailed(case)
        return case["outputs"]

    def verb(self, kind: str, item: str = "", **more: Any) -> None:
        """Steer the case or one of its items: ``suspend``, ``continue``, ``remove`` and so on; see the HTTP interface."""
        self._client.verb(self.id, kind, item=item, **more)

    def picture(self) -> str:
        """The flow with its items, as SVG."""
        return self._picture(self.look())

    def _picture(self, case: CaseWhole) -> str:
        if self._text is None:
            self._text = str(self._client.flow(case["version"])["text"])
        return picture_of_text(self._text, _items(case), title=case["name"])

    def __repr__(self) -> str:
        return f"<CaseHandle {self.id}>"

    def _repr_html_(self) -> str:
        try:
            case = self.look()
            picture = self._picture(case)
        except ClientError as error:
            return progress_html(f"case {self.id}", well=0, bad=0, count=0, words=str(error))
        items = case["items"]
        good = sum(1 for item in items if item["state"] in ENDED - {"failed"})
        bad = sum(1 for item in items if item["state"] == "failed")
        words = case["state"] + (f": {case['reason']}" if case["reason"] else "")
        if case["outputs"]:
            words += f"; outputs {json.dumps(case['outputs'])[:500]}"
        return progress_html(
            f"{case['name']} {self.id}", well=good, bad=bad, count=len(items), words=words, picture=picture
        )


def _items(case: CaseWhole) -> list[Mapping[str, Any]]:
    return [dict(item) for item in case["items"]]


def start_flow(
    flow: str | Path,
    params: Mapping[str, object] | None = None,
    *,
    client: ForestayClient | None = None,
    key: str | None = None,
) -> CaseHandle:
    """Start a case: of a flow in a YAML file or text, of a Python flow by its name, or of a stored flow by its version.

    Without `client` the server and token are found as the command line finds them. With a `key` a repeat gives the same case.
    """
    if client is None:
        settings = find_settings()
        client = ForestayClient(settings.server.value, settings.token.value)
    if isinstance(flow, Path) or flow.endswith((".yaml", ".yml", ".json")):
        flow = Path(flow).read_text(encoding="utf-8")
    if "\n" in flow or "{" in flow:
        flow = client.store_flow(flow)["version"]
    return CaseHandle(client, client.start_case(flow, params, key=key)["id"])
