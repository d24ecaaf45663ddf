"""The entry point of this package in Forestay; it imports the package's modules only when they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forestay.ports.flows.flow_format import CallbackBody

if TYPE_CHECKING:
    from forestay.apps.server.http.router import Router
    from forestay_bpel.domain.bpel_flow import BpelFlow


class BpelFormat:
    """Implements `forestay.apps.flow_formats.FormatPackage`."""

    pure_modules = ("forestay_bpel.domain", "forestay_bpel.interpreter")

    def read(self, plain: Mapping[str, Any]) -> BpelFlow:
        from forestay_bpel.domain.bpel_flow import bpel_from_plain

        return bpel_from_plain(plain)

    def workflow(self) -> type[Any]:
        from forestay_bpel.workflow import BpelRunWorkflow

        return BpelRunWorkflow

    def callback(self, facts: Mapping[str, object]) -> CallbackBody:
        from forestay_bpel.formats.soap import notification

        headers = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '"notify"'}
        return CallbackBody(notification(facts).encode(), headers)

    def routers(self) -> Sequence[Router]:
        from forestay_bpel.server import routes

        return routes.router, routes.soap_router

    def commands(self) -> Mapping[str, Callable[..., int]]:
        from forestay_bpel import commands

        return {"check": commands.check, "run": commands.run, "adapt": commands.adapt, "send": commands.send}


FORMAT = BpelFormat()
