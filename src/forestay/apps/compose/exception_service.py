"""Implements `ports.exceptions.exception_service.ExceptionService` by interface X."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from forestay.client.api import engine_calls
from forestay.client.api.async_client import AsyncForestayClient
from forestay.client.api.calls import Call
from forestay.client.transport.errors import ApiError, ClientError
from forestay.ports.errors import Permanent, Transient
from forestay.ports.exceptions.exception_service import EngineNews, EventReply, OrderedAction

if TYPE_CHECKING:
    from forestay.client.api.schemas import NewEvent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RemoteExceptionService:
    """The exception service of a Forestay installation, for one engine."""

    client: AsyncForestayClient
    engine: str

    async def report(self, events: Sequence[Mapping[str, Any]]) -> Sequence[EventReply]:
        answers = await self._send(engine_calls.report(self.engine, cast("Sequence[NewEvent]", events)))
        return [
            EventReply(answer["run"], answer["incident"] if answer["answer"] == "wait" else None, answer["words"])
            for answer in answers
        ]

    async def news(self, incidents: Collection[str], *, wait: float) -> EngineNews:
        found_orders = await self._send(engine_calls.orders(self.engine, incidents=list(incidents), wait=wait))
        orders = [
            OrderedAction(
                order["n"],
                order["id"],
                order["key"],
                order["verb"],
                order["task"],
                order["wait"],
                order["needs"],
                order["incident"],
                order["reason"],
            )
            for order in found_orders.orders
        ]
        return EngineNews(
            orders, {name: incident["words"] for name, incident in found_orders.incidents.items() if incident["closed"]}
        )

    async def answer(self, order: str, outcome: str, detail: str = "") -> None:
        await self._send(engine_calls.answer_order(self.engine, order, outcome, detail))

    async def _send(self, call: Call[T]) -> T:
        try:
            return await self.client.send(call)
        except ApiError as error:
            raise (Transient if error.status >= 500 or error.status == 429 else Permanent)(str(error)) from error
        except ClientError as error:
            raise Transient(str(error)) from error
