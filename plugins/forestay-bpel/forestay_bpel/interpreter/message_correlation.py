"""Messages for a process: those that wait for a receiver, and receivers that wait for a message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from forestay_bpel.domain.bpel.process import Correlation, OnMessage, Receive
from forestay_bpel.interpreter.host import Incoming, Message, standard_fault
from forestay_bpel.interpreter.scopes import Running, Values

MAX_WAITING = 1000
Wanted = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(slots=True, eq=False)
class _Receiver:
    partner: str
    operation: str
    wanted: Wanted
    """The values that the properties of correlation sets must have."""
    place: int
    arrived: asyncio.Future[tuple[int, Incoming]]
    at: Running
    sets: tuple[str, ...] = field(default_factory=tuple)


class MessageCorrelation:
    """The message queues of one process."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.waiting_messages: list[Incoming] = []
        self.receivers: list[_Receiver] = []
        self.requests: dict[tuple[str, str, str], int] = {}
        """Received requests that are not answered yet."""

    def deliver(self, incoming: Incoming) -> bool:
        """Give a message to its receiver, or keep it; false: the queue is full."""
        for receiver in self.receivers:
            if not receiver.arrived.done() and self._fits(receiver, incoming):
                receiver.arrived.set_result((receiver.place, incoming))
                return True
        if len(self.waiting_messages) >= MAX_WAITING:
            return False
        self.waiting_messages.append(incoming)
        return True

    async def receive(self, at: Running, any_of: Sequence[Receive | OnMessage]) -> tuple[int, Incoming]:
        """Wait for the first of several messages."""
        arrived: asyncio.Future[tuple[int, Incoming]] = asyncio.get_running_loop().create_future()
        mine = [self._receiver(at, receiver, place, arrived) for place, receiver in enumerate(any_of)]
        try:
            return await self._wait(mine, arrived)
        finally:
            self.withdraw(arrived)

    def listen(
        self, at: Running, any_of: Sequence[Receive | OnMessage], arrived: asyncio.Future[tuple[int, Incoming]]
    ) -> None:
        """Set a future to the first of several messages; `withdraw` ends this."""
        for place, other_receiver in enumerate(any_of):
            receiver = self._receiver(at, other_receiver, place, arrived)
            if not self._from_stock(receiver):
                self.receivers.append(receiver)

    def withdraw(self, arrived: asyncio.Future[tuple[int, Incoming]]) -> None:
        self.receivers = [receiver for receiver in self.receivers if receiver.arrived is not arrived]

    async def _wait(self, mine: list[_Receiver], arrived: asyncio.Future[tuple[int, Incoming]]) -> tuple[int, Incoming]:
        for receiver in mine:
            if self._from_stock(receiver):
                return arrived.result()
        self.receivers += mine
        try:
            return await arrived
        except asyncio.CancelledError:
            if arrived.done() and not arrived.cancelled():
                # It came while its receiver was being ended: another one may need it.
                self.waiting_messages.insert(0, arrived.result()[1])
            raise

    def _from_stock(self, receiver: _Receiver) -> bool:
        if receiver.arrived.done():
            return True
        for incoming in self.waiting_messages:
            if self._fits(receiver, incoming):
                self.waiting_messages.remove(incoming)
                receiver.arrived.set_result((receiver.place, incoming))
                return True
        return False

    def _receiver(
        self, at: Running, activity: Receive | OnMessage, place: int, arrived: asyncio.Future[tuple[int, Incoming]]
    ) -> _Receiver:
        line = activity.line if isinstance(activity, OnMessage) else activity.std.line
        wanted: list[tuple[str, tuple[str, ...]]] = []
        for correlation in activity.correlations:
            if not _knows(at, correlation):
                continue
            values = at.home_of_set(correlation.set).sets[correlation.set]
            if values is None and correlation.initiate == "no":
                raise standard_fault("correlationViolation", f"{correlation.set} has no value yet", line)
            if values is not None and correlation.initiate != "yes":
                wanted.append((correlation.set, values))
        for other in self.receivers:
            same = (other.partner, other.operation, other.wanted) == (
                activity.partner,
                activity.operation,
                tuple(wanted),
            )
            if same and other.arrived is not arrived and not other.arrived.done():
                raise standard_fault("conflictingReceive", f"{activity.operation} is already being waited for", line)
        return _Receiver(activity.partner, activity.operation, tuple(wanted), place, arrived, at)

    def _fits(self, receiver: _Receiver, incoming: Incoming) -> bool:
        if (receiver.partner, receiver.operation) != (incoming.partner, incoming.operation):
            return False
        return all(self.properties(receiver.at, name, incoming.message) == values for name, values in receiver.wanted)

    def properties(self, at: Running, name: str, message: Message) -> tuple[str, ...] | None:
        """The values of a set's properties in a message; ``None`` if one is missing."""
        declared = next(
            correlation_set for correlation_set in at.home_of_set(name).scope.sets if correlation_set.name == name
        )
        elements = [self.values.property_node(message, property_) for property_ in declared.properties]
        return (
            None
            if any(element is None for element in elements)
            else tuple(element.text.strip() for element in elements if element is not None)
        )

    def correlate(self, at: Running, correlations: Sequence[Correlation], message: Message, line: int) -> None:
        """Correlate a received or sent message: initiate sets with its values, and check that it has those of the others."""
        for correlation in correlations:
            if not _knows(at, correlation):
                continue
            home = at.home_of_set(correlation.set)
            known = home.sets[correlation.set]
            properties = self.properties(at, correlation.set, message)
            if correlation.initiate == "yes" and known is not None:
                raise standard_fault("correlationViolation", f"{correlation.set} has a value already", line)
            if correlation.initiate == "no" and known is None:
                raise standard_fault("correlationViolation", f"{correlation.set} has no value yet", line)
            if properties is None or (known is not None and known != properties):
                raise standard_fault(
                    "correlationViolation", f"the message does not have the values of {correlation.set}", line
                )
            home.sets[correlation.set] = properties


def _knows(at: Running, correlation: Correlation) -> bool:
    context: Running | None = at
    while context is not None:
        if correlation.set in context.sets:
            return True
        context = context.above
    return False
