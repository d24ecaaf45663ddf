"""How a function call is serialised: by its name, with plain values, or optionally as a cloudpickle.

A name is enough where the runner sees the same files as this program: the module is imported there, or the script itself is
read again. Nothing that comes back is ever unpickled.
"""

from __future__ import annotations

import base64
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import orjson

from forestay.client.transport.errors import ClientError
from forestay_pilot.calls.plain_values import NotPlainError, pack

LARGEST_CALL = 16_000
"""Bytes of a call as JSON; what is larger belongs into a file."""


class NotCallable(ClientError):
    """A function or its arguments cannot be serialised; the message says what to do."""


class FunctionReference(NamedTuple):
    """Where a function is found again."""

    function: str
    main: str | None
    """The script, for a function of the program itself."""


@lru_cache(maxsize=1024)
def reference(function: Callable[..., Any]) -> FunctionReference:
    """The name by which a runner finds the function; `NotCallable` for one that has none."""
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not path:
        raise NotCallable(f"{function!r} has no name of its own; wrap it into a function of a module")
    if "<" in path or not _is_found(module, path, function):
        raise NotCallable(
            f"{module}.{path} cannot be found by its name (a lambda, a function in a function, or one that was replaced); "
            "move it to the top level of a module, or use Executor(cloudpickle=True)"
        )
    if module != "__main__":
        return FunctionReference(f"{module}:{path}", None)
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:  # started by `python -m package.module`
        return FunctionReference(f"{spec.name}:{path}", None)
    script = getattr(main, "__file__", None)
    if not script or not os.path.isfile(script):
        raise NotCallable(
            f"{path} was defined interactively, so no file contains it; put it into a module, or use Executor(cloudpickle=True)"
        )
    return FunctionReference(f"__main__:{path}", os.path.abspath(script))


def _is_found(module: str, path: str, function: object) -> bool:
    try:
        found_module: Any = importlib.import_module(module)
        for part in path.split("."):
            found_module = getattr(found_module, part)
    except (ImportError, AttributeError):
        return False
    return found_module is function


def named_call(function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Any]:
    """A call by name with plain arguments."""
    while isinstance(function, partial):
        args, kwargs, function = (*function.args, *args), {**function.keywords, **kwargs}, function.func
    try:
        name = reference(function)
    except TypeError:  # not hashable, so certainly no function of a module
        raise NotCallable(f"{function!r} is not a function that can be found by its name") from None
    call: dict[str, Any] = {"function": name.function}
    if name.main is not None:
        call["main"] = name.main
    try:
        if args:
            call["args"] = [pack(argument) for argument in args]
        if kwargs:
            call["kwargs"] = {key: pack(argument) for key, argument in kwargs.items()}
    except NotPlainError as error:
        raise NotCallable(f"an argument of {name.function} cannot be sent: {error}") from None
    return call


def pickled_call(function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Any]:
    """A call with its function and arguments as they are; only the caller's own runner ever reads it."""
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ImportError:
        raise NotCallable("Executor(cloudpickle=True) needs cloudpickle here and where functions run") from None
    return {"pickle": base64.b64encode(cloudpickle.dumps((function, tuple(args), dict(kwargs)))).decode()}


def checked_size(call: dict[str, Any]) -> dict[str, Any]:
    """The call, if it is small enough."""
    try:
        size = len(orjson.dumps(call))
    except TypeError as error:
        raise NotCallable(f"the arguments cannot be sent: {error}") from None
    if size > LARGEST_CALL:
        raise NotCallable(f"the call has {size:,} bytes; the limit is {LARGEST_CALL:,}. Put the data into a file")
    return call


def own_places() -> list[str]:
    """The folders this program imports its own modules from: not those of the interpreter and its packages."""
    installed = tuple(os.path.realpath(folder) + os.sep for folder in {sys.prefix, sys.base_prefix, sys.exec_prefix})
    abspaths = [os.path.abspath(place or os.curdir) for place in sys.path]
    return [
        place
        for place in dict.fromkeys(abspaths)
        if os.path.isdir(place) and not (os.path.realpath(place) + os.sep).startswith(installed)
    ]
