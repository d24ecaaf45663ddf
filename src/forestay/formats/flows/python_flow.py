"""Finds the flows in a Python file by reading it, without running any of it."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass

from forestay.domain.flows.definition.python_flow import PythonFlow
from forestay.formats.flows.yaml_flow import TextProblem

DECORATOR = "flow"
MAX_SOURCE = 200_000


@dataclass(frozen=True, slots=True)
class PythonFile:
    """The contents of a file: its flows, and all errors."""

    flows: tuple[PythonFlow, ...]
    problems: tuple[TextProblem, ...] = ()


def read_python_flows(source: str, file: str = "") -> PythonFile:
    """The flows of a source file: its ``async`` functions with the decorator ``@flow``."""
    if len(source.encode()) > MAX_SOURCE:
        return PythonFile((), (TextProblem(1, 1, file, f"a flow's file has at most {MAX_SOURCE} bytes"),))
    try:
        tree = ast.parse(source, file or "<flow>")
    except (SyntaxError, ValueError) as error:
        line, column = (error.lineno or 1, error.offset or 1) if isinstance(error, SyntaxError) else (1, 1)
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        return PythonFile((), (TextProblem(line, column, file, f"this is not Python: {what}"),))
    flows: list[PythonFlow] = []
    problems: list[TextProblem] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _marked(node):
            flow, wrong = _flow(node, source, file)
            problems += wrong
            if not wrong:
                flows.append(flow)
    return PythonFile(tuple(flows), tuple(problems))


def _marked(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(_name(other_node) == DECORATOR for other_node in node.decorator_list)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _flow(node: ast.FunctionDef | ast.AsyncFunctionDef, source: str, file: str) -> tuple[PythonFlow, list[TextProblem]]:
    problems: list[TextProblem] = []

    def wrong(at: ast.AST, message: str) -> None:
        line, column = getattr(at, "lineno", node.lineno), getattr(at, "col_offset", 0) + 1
        problems.append(TextProblem(line, column, node.name, message))

    if isinstance(node, ast.FunctionDef):
        wrong(node, "a flow is an 'async def'")
    args = node.args
    if args.posonlyargs or args.vararg or args.kwarg:
        wrong(node, "a flow's parameters are given by name: no '/', '*args' or '**kwargs'")
    params: dict[str, object] = {}
    needed: list[str] = []
    for parameter, default in _parameters(args):
        if default is None:
            needed.append(parameter.arg)
            continue
        try:
            params[parameter.arg] = json.loads(json.dumps(ast.literal_eval(default), allow_nan=False))
        except (ValueError, TypeError):
            wrong(default, f"the default of {parameter.arg} is no value of JSON types written down")
    described = inspect.cleandoc(ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
    return PythonFlow(node.name, source, file, params, tuple(needed), described[:500]), problems


def _parameters(node: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    without = len(node.args) - len(node.defaults)
    yield from ((other_node, None) for other_node in node.args[:without])
    yield from zip(node.args[without:], node.defaults, strict=True)
    yield from zip(node.kwonlyargs, node.kw_defaults, strict=True)
