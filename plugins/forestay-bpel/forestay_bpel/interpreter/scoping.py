"""Runs scopes: their variables, event handlers, fault handlers, termination and compensation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from forestay_bpel.domain.bpel.process import Activity, Catch, OnAlarm, OnMessage, Scope, VariableDeclaration
from forestay_bpel.interpreter.execution_context import ExecutionContext, Exited
from forestay_bpel.interpreter.host import WHOLE, Fault, standard_fault
from forestay_bpel.interpreter.parallel_scope import ParallelScope, Work, heard
from forestay_bpel.interpreter.scopes import Running, ScopeVariable, copied

if TYPE_CHECKING:
    from forestay_bpel.interpreter.interpreter import Interpreter


class Scoping:
    """The scopes of one process that runs."""

    def __init__(self, process: Interpreter) -> None:
        self.process = process

    async def run(
        self, scope: Scope, context: ExecutionContext, *, preset: dict[str, ScopeVariable] | None = None
    ) -> bool:
        """Run a scope; false: a fault in it was handled."""
        running = Running(scope, context.at)
        running.sets = {correlation_set.name: None for correlation_set in scope.sets}
        for variable in scope.variables:
            running.variables[variable.name] = ScopeVariable(variable)
        running.variables |= preset or {}
        inner = replace(context, at=running, completed=running.completed)
        if scope.isolated:
            async with self.process.isolation:
                good = await self._guarded(scope, running, inner)
        else:
            good = await self._guarded(scope, running, inner)
        for handler in _handlers(scope):
            self.process.dead(handler, context)
        if good:
            context.completed.append(running)
        return good

    async def _guarded(self, scope: Scope, running: Running, inner: ExecutionContext) -> bool:
        for variable in scope.variables:
            if variable.first is not None:
                try:
                    self.process.assigning.first(running, running.variables[variable.name], variable.first)
                except Fault as fault:
                    raise standard_fault("scopeInitializationFailure", fault.why, variable.line) from fault
        try:
            await self._main(scope, running, inner)
        except asyncio.CancelledError:
            if not self.process.ending:
                await self._protected(self._terminate(scope, running, inner))
            raise
        except Fault as fault:
            if self.process.ending:
                raise
            if scope.exit_on_standard and fault.standard and not fault.name.endswith("}joinFailure"):
                self.process.exiting = True
                raise Exited from fault
            await self._protected(self._handle(scope, running, inner, fault))
            return False
        return True

    async def _protected(self, work: Work) -> None:
        """A handler that has begun is not interrupted, unless the whole process ends."""
        task = asyncio.get_running_loop().create_task(work)
        interrupted = False
        while not task.done():
            if interrupted and self.process.ending:
                task.cancel()
            interrupted |= await heard(task)
        if interrupted:
            if not task.cancelled():
                task.exception()
            raise asyncio.CancelledError
        task.result()

    async def _main(self, scope: Scope, running: Running, inner: ExecutionContext) -> None:
        if not scope.messages and not scope.alarms:
            await self.process.do(scope.inner, inner)
            return
        group = ParallelScope()
        listeners: list[asyncio.Task[None]] = []

        async def inside() -> None:
            await self.process.do(scope.inner, inner)
            for listener in listeners:
                listener.cancel()

        listeners += [group.spawn(self._listen(event, running, inner, group)) for event in scope.messages]
        listeners += [group.spawn(self._alarm(alarm, running, inner, group)) for alarm in scope.alarms]
        group.spawn(inside())
        await group.wait()

    async def _listen(self, event: OnMessage, running: Running, inner: ExecutionContext, group: ParallelScope) -> None:
        while True:
            _, incoming = await self.process.correlation.receive(running, [event])
            self.process.busy = 0
            self.process.host.trace(f"onEvent {event.operation}")
            own = Running(running.scope, running)
            for name in (event.variable, *(from_part.variable for from_part in event.from_parts)):
                if name and not (event.from_parts and running.has(name)):
                    own.variables[name] = ScopeVariable(
                        VariableDeclaration(name, event.line, event.message, element=event.element)
                    )
            self.process.messages.take(event, incoming, own)
            group.spawn(self.process.do(event.inner, replace(inner, at=own, links={})))

    async def _alarm(self, alarm: OnAlarm, running: Running, inner: ExecutionContext, group: ParallelScope) -> None:
        every = None if alarm.every is None else self.process.seconds(running, alarm.every)
        if alarm.for_ is not None or alarm.until is not None:
            await self.process.sleep(running, alarm.for_, alarm.until)
        elif every is not None:
            await self.process.rest(every)
        while True:
            self.process.host.trace("onAlarm")
            group.spawn(self.process.do(alarm.inner, replace(inner, links={})))
            if every is None:
                return
            await self.process.rest(every)

    async def _handle(self, scope: Scope, running: Running, inner: ExecutionContext, fault: Fault) -> None:
        catch = _catch(scope, fault)
        handling = replace(inner, fault=fault, handled=running, completed=[])
        if catch is None and scope.catch_all is None:
            await self.compensate(running)
            raise fault
        self.process.host.trace(f"catch {fault.name.rpartition('}')[2]}")
        if catch is None:
            assert scope.catch_all is not None  # noqa: S101 - it was looked at above
            await self.process.do(scope.catch_all, handling)
            return
        own = Running(scope, running)
        if catch.variable:
            declared = VariableDeclaration(catch.variable, catch.line, catch.message, element=catch.element)
            own.variables[catch.variable] = ScopeVariable(declared, copied(fault.data))
        await self.process.do(catch.inner, replace(handling, at=own))

    async def _terminate(self, scope: Scope, running: Running, inner: ExecutionContext) -> None:
        self.process.host.trace(f"terminate {scope.std.name}".strip())
        try:
            if scope.termination is None:
                await self.compensate(running)
            else:
                await self.process.do(scope.termination, replace(inner, handled=running, completed=[], links={}))
        except Fault:
            # A fault while a scope is terminated is dropped: the termination was caused by another fault.
            self.process.host.trace(f"termination of {scope.std.name} failed")

    async def compensate(self, running: Running, target: str | None = None) -> None:
        """Undo the completed scopes inside a scope, the last first; each once."""
        for child in reversed(list(running.completed)):
            if (target is None or child.scope.std.name == target) and child in running.completed:
                running.completed.remove(child)
                await self._undo(child)

    async def _undo(self, child: Running) -> None:
        self.process.host.trace(f"compensate {child.scope.std.name}".strip())
        if child.scope.compensation is None:
            await self.compensate(child)
            return
        context = ExecutionContext(child, {}, [], handled=child)
        await self.process.do(child.scope.compensation, context)


def _handlers(scope: Scope) -> Iterator[Activity]:
    yield from (catch.inner for catch in scope.catches)
    if scope.catch_all is not None:
        yield scope.catch_all


def _catch(scope: Scope, fault: Fault) -> Catch | None:
    data = fault.data
    root = next(iter(data.values())) if data is not None and len(data) == 1 else None
    best: Catch | None = None
    rank = 0
    for catch in scope.catches:
        if catch.fault and catch.fault != fault.name:
            continue
        if catch.variable:
            if data is None or (catch.element and (root is None or root.tag != catch.element)):
                continue
            if catch.message and not catch.fault and WHOLE in data:
                continue
        worth = (2 if catch.fault else 0) + (1 if catch.variable else 0)
        if catch.fault and not catch.variable and data is None:
            worth = 4
        if worth > rank:
            best, rank = catch, worth
    return best
