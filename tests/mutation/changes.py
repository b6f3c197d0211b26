"""What is changed in a module: Cosmic Ray's operators that mean something here, and statements that are left out.

A change that leaves what runs as it was (annotations, assertions, traces, what type checkers alone see) is none.
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import attrs

OPERATORS: Final = (
    *(f"ReplaceComparisonOperator_{pair}" for pair in (
        "Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Is_IsNot", "IsNot_Is")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in (
        "Add_Sub", "Sub_Add", "Mul_FloorDiv", "FloorDiv_Mul", "Mod_Mul", "BitOr_BitAnd", "BitAnd_BitOr",
        "LShift_RShift", "RShift_LShift")),
    "AddNot", "ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_USub", "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak", "NumberReplacer", "RemoveDecorator", "ZeroIterationForLoop",
)


@attrs.frozen
class Change:
    """One change of one module. The first three name it for ever, whatever line it moves to."""

    place: str
    """Class and function it is in."""
    old: str
    new: str
    code: str = attrs.field(repr=False, eq=False)
    """The whole module, changed."""
    lines: frozenset[int] = attrs.field(repr=False, eq=False, default=frozenset())
    """Lines that are changed, as they were, and the first of the statement they begin in."""
    around: str = attrs.field(repr=False, eq=False, default="")
    """The function, or else the whole module, that is changed, as it was."""


class _WhatRuns(ast.NodeTransformer):
    """Drops what decides nothing at run time."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.Pass()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """How the fields of a class may be given is checked with the types."""
        node.keywords = [each for each in node.keywords if each.arg != "kw_only"]
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        test = ast.unparse(node.test.values[0] if isinstance(node.test, ast.BoolOp) else node.test)
        if test.endswith(".trace") or test in ("trace", "TYPE_CHECKING"):
            return ast.Pass()
        return self.generic_visit(node)


def what_runs(code: str) -> str | None:
    """Equal for two texts that do the same by their very form; None for one that is no Python."""
    try:
        return ast.dump(_WhatRuns().visit(ast.parse(code)))
    except SyntaxError:
        return None


def _place(tree: ast.AST, line: int) -> str:
    """The innermost class and function around a line."""
    names: list[str] = []
    node: ast.AST | None = tree
    while node is not None:
        inside = [child for child in ast.walk(node) if child is not node
                  and isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                  and child.lineno <= line <= (child.end_lineno or line)]
        node = min(inside, key=lambda child: child.lineno, default=None)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
    return ".".join(names)


def _left_out(code: str) -> Iterator[str]:
    """Each statement of a function in turn becomes ``pass``."""
    lines = code.splitlines(keepends=True)
    for function in ast.walk(ast.parse(code)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(function):
            documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            ends = node is function.body[-1] and ast.unparse(node) in ("return", "return None")
            if documents or ends or not isinstance(node, (
                    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Raise, ast.Delete, ast.If)):
                continue
            assert node.end_lineno is not None
            indent = " " * node.col_offset
            if lines[node.lineno - 1][: node.col_offset].strip():
                continue  # an elif: leaving it out alone is no Python
            yield "".join([*lines[: node.lineno - 1], f"{indent}pass\n", *lines[node.end_lineno :]])


def changes(code: str) -> list[Change]:
    """All changes of a module's text, in a fixed order, each once. Needs Cosmic Ray."""
    import cosmic_ray.plugins  # the group of requirements "mutation" has it
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code

    def texts() -> Iterator[str]:
        tree: Any = get_ast(code)
        for name in OPERATORS:
            operator = cosmic_ray.plugins.get_operator(f"core/{name}")()
            count = sum(len(list(operator.mutation_positions(node))) for node in ast_nodes(tree))
            for occurrence in range(count):
                changed = mutate_code(code, operator, occurrence)
                if changed is not None:
                    yield changed
        yield from _left_out(code)

    plain, tree, seen = what_runs(code), ast.parse(code), set()
    out: list[Change] = []
    counts: Counter[tuple[str, str, str]] = Counter()
    for text in texts():
        form = what_runs(text)
        if form is None or form == plain or form in seen:
            continue
        seen.add(form)
        old, new, lines = _difference(code, text)
        place = _place(tree, min(lines))
        counts[place, old, new] += 1
        nth = counts[place, old, new]
        out.append(Change(place if nth == 1 else f"{place}#{nth}", old, new, text,
                          frozenset({_statement(tree, min(lines)), *lines}), _around(tree, code, min(lines))))
    return out


def _around(tree: ast.AST, code: str, line: int) -> str:
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                 and node.lineno <= line <= (node.end_lineno or line)]
    found = ast.get_source_segment(code, max(functions, key=lambda node: node.lineno)) if functions else None
    return found or code


def _statement(tree: ast.AST, line: int) -> int:
    """The first line of the innermost statement around a line."""
    return max((node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)
                and node.lineno <= line <= (node.end_lineno or line)), default=line)


def _difference(before: str, after: str) -> tuple[str, str, set[int]]:
    """The lines that differ, without their indentation, and their numbers in the first text."""
    lines, others = before.splitlines(), after.splitlines()
    old: list[str] = []
    new: list[str] = []
    numbers: set[int] = set()
    for tag, start, stop, there, until in difflib.SequenceMatcher(None, lines, others, autojunk=False).get_opcodes():
        if tag != "equal":
            numbers |= {start + 1, *range(start + 1, stop + 1)}
            old += [line.strip() for line in lines[start:stop]]
            new += [line.strip() for line in others[there:until]]
    return " ⏎ ".join(old), " ⏎ ".join(new), numbers
