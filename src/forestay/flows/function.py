"""The decorator of a flow's function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])
MARK = "__forestay_flow__"


def flow(function: Function) -> Function:
    """Mark an ``async`` function as a flow. Its parameters are the flow's, its name is the flow's, and what it returns are the outputs of the run.

    It remains an ordinary function: another flow of the same file may await it as a part of itself.
    """
    plain: object = function
    if not inspect.iscoroutinefunction(plain):
        raise TypeError(f"{getattr(function, '__name__', function)!r} is not a flow: use 'async def'")
    setattr(function, MARK, True)
    return function
