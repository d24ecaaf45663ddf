"""Small faults that could be in a file: each is one place where the code says something else, found by its syntax."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
}  # fmt: skip
OTHER_NAMES = {"min": "max", "max": "min", "all": "any", "any": "all"}
SAYS_ONLY = frozenset({"log", "logger", "logging", "LOG", "cast"})
"""What only notes something for people, or for a type checker."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault in one file."""

    file: str
    line: int
    operator: str
    before: str
    after: str
    number: int
    """Of its file: the same source has the same numbers."""

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.operator} {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class _Change:
    operator: str
    node: ast.AST
    after: ast.AST | None
    """What stands there instead; None: the statement is left out."""


def _skipped(node: ast.AST) -> bool:
    """What is no behaviour: types, decorators, docstrings, notes for people."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Constant):
            return True
        return isinstance(value, ast.Call) and ast.unparse(value.func).lstrip("_").split(".")[0] in SAYS_ONLY
    return isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    left_out = {"annotation", "returns", "decorator_list", "bases", "type_params"}
    for name, value in ast.iter_fields(node):
        if name in left_out:
            continue
        yield from (part for part in (value if isinstance(value, list) else [value]) if isinstance(part, ast.AST))


def _changes_of(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Compare(ops=[operator], left=left, comparators=others) if type(operator) in SWAPS:
            yield _Change("compare", node, ast.Compare(left, [SWAPS[type(operator)]()], others))  # type: ignore[list-item]
        case ast.BoolOp(op=operator, values=values):
            yield _Change("and-or", node, ast.BoolOp(SWAPS[type(operator)](), values))  # type: ignore[arg-type]
            yield from (_Change("part", node, values[place]) for place in (0, len(values) - 1))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in SWAPS:
            if not any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (left, right)):
                yield _Change("arithmetic", node, ast.BinOp(left, SWAPS[type(operator)](), right))  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _Change("not", node, operand)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
                yield _Change("negate", test, ast.UnaryOp(ast.Not(), test))
        case ast.Constant(value=bool() as value):
            yield _Change("constant", node, ast.Constant(not value))
        case ast.Constant(value=int() as value):
            yield _Change("constant", node, ast.Constant(value + 1))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in OTHER_NAMES:
            yield _Change("other name", node, ast.Call(ast.Name(OTHER_NAMES[name], ast.Load()), args, keywords))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _Change("return", node, ast.Return(ast.Constant(None)))
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield _Change("leave out", node, None)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield _Change("leave out", node, None)


def _walk(node: ast.AST, *, inside: bool) -> Iterator[_Change]:
    """All changes, in the order of the source; only what runs inside of functions, so that imports still work."""
    if _skipped(node):
        return
    if inside:
        yield from _changes_of(node)
    inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in _children(node):
        yield from _walk(child, inside=inside)


def _replaced(tree: ast.Module, node: ast.AST, make: Callable[[ast.AST], ast.AST]) -> ast.Module:
    class Place(ast.NodeTransformer):
        def visit(self, here: ast.AST) -> ast.AST:
            return make(here) if here is node else self.generic_visit(here)

    replaced = Place().visit(tree)
    assert isinstance(replaced, ast.Module)
    return ast.fix_missing_locations(replaced)


def _lines_of(tree: ast.Module, functions: Collection[str]) -> frozenset[int]:
    return frozenset(
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in functions
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    )


@cache
def mutants(file: str, source: str, functions: frozenset[str] = frozenset()) -> tuple[Mutant, ...]:
    """Every fault that can be put into a file, or into some of its functions."""
    found = []
    tree = ast.parse(source)
    wanted = _lines_of(tree, functions)
    for number, change in enumerate(_walk(tree, inside=False)):
        if functions and getattr(change.node, "lineno", 0) not in wanted:
            continue
        before, after = ast.unparse(change.node), ast.unparse(change.after) if change.after else "pass"
        place = getattr(change.node, "lineno", 0)
        found.append(Mutant(file, place, change.operator, _short(before), _short(after), number))
    return tuple(found)


def mutated(source: str, number: int) -> str:
    """The file with one of its faults."""
    tree = ast.parse(source)
    change = next(change for place, change in enumerate(_walk(tree, inside=False)) if place == number)
    after = deepcopy(change.after) if change.after else ast.Pass()
    return ast.unparse(_replaced(tree, change.node, lambda _: after)) + "\n"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 110 else line[:107] + "..."
