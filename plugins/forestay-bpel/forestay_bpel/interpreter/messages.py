"""Messages that a process sends and receives: from variables, to variables, with their correlation."""

from __future__ import annotations

from collections.abc import Sequence

from forestay_bpel.domain.bpel.process import Invoke, MessagePart, OnMessage, Receive, Reply
from forestay_bpel.interpreter.assigning import Assigning
from forestay_bpel.interpreter.host import WHOLE, Host, Incoming, Message, PartnerCall, standard_fault
from forestay_bpel.interpreter.message_correlation import MessageCorrelation
from forestay_bpel.interpreter.scopes import Running, copied


class Messages:
    """The messages between one process and its partners."""

    def __init__(self, host: Host, correlation: MessageCorrelation, assigning: Assigning) -> None:
        self.host = host
        self.correlation = correlation
        self.assigning = assigning

    async def invoke(self, activity: Invoke, at: Running) -> None:
        message = _outgoing(at, activity.input, activity.to_parts, activity.std.line)
        asking = [
            correlation
            for correlation in activity.correlations
            if correlation.pattern in ("", "request", "request-response")
        ]
        self.correlation.correlate(at, asking, message, activity.std.line)
        answered = bool(activity.output or activity.from_parts)
        address = at.home_of_partner(activity.partner).addresses.get(activity.partner, "")
        call = PartnerCall(
            activity.partner, activity.operation, message, activity.std.name, activity.std.line, answered, address
        )
        answer = await self.host.invoke(call)
        if answered:
            self._store(at, activity.output, activity.from_parts, answer)
            answering = [
                correlation
                for correlation in activity.correlations
                if correlation.pattern in ("response", "request-response")
            ]
            self.correlation.correlate(at, answering, answer, activity.std.line)

    async def reply(self, activity: Reply, at: Running) -> None:
        key = (activity.partner, activity.operation, activity.exchange)
        if not self.correlation.requests.get(key):
            raise standard_fault(
                "missingRequest", f"no request waits for a reply to {activity.operation}", activity.std.line
            )
        message = _outgoing(at, activity.variable, activity.to_parts, activity.std.line)
        self.correlation.correlate(at, activity.correlations, message, activity.std.line)
        self.correlation.requests[key] -= 1
        await self.host.reply(activity.partner, activity.operation, message, activity.fault)

    def take(self, activity: Receive | OnMessage, incoming: Incoming, at: Running) -> None:
        line = activity.line if isinstance(activity, OnMessage) else activity.std.line
        self.correlation.correlate(at, activity.correlations, incoming.message, line)
        key = (activity.partner, activity.operation, activity.exchange)
        self.correlation.requests[key] = self.correlation.requests.get(key, 0) + 1
        self._store(at, activity.variable, activity.from_parts, incoming.message)

    def _store(self, at: Running, variable: str, parts: Sequence[MessagePart], message: Message) -> None:
        if variable:
            held = at.find(variable)
            elements = copied(message) or {}
            if not held.is_message and elements and WHOLE not in elements:
                elements = {WHOLE: next(iter(elements.values()))}
            held.value = elements
        for message_part in parts:
            value = message.get(message_part.part)
            if value is not None:
                self.assigning.store(at.find(message_part.variable), "", value.copy(), keep_name=False)


def _outgoing(at: Running, variable: str, parts: Sequence[MessagePart], line: int) -> Message:
    if variable:
        elements = copied(at.find(variable).value)
        if elements is None:
            raise standard_fault("uninitializedVariable", variable, line)
        return elements
    out: Message = {}
    for message_part in parts:
        value = at.find(message_part.variable).value
        if value is None:
            raise standard_fault("uninitializedVariable", message_part.variable, line)
        out[message_part.part] = next(iter(value.values())).copy()
    return out
