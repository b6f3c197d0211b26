"""A changed module put into a process that has imported it: each live function takes its changed code.

What runs while a module is imported (its constants, bodies of classes, defaults of arguments, decorators) cannot be
changed so. Imports nothing of this project.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType


def swaps(before: str, after: str) -> bool:
    """Whether two texts of a module differ in bodies of functions alone."""
    found = _pairs(compile(before, "m", "exec"), compile(after, "m", "exec"))
    return found is not None and all(
        old.co_flags & inspect.CO_OPTIMIZED or _shallow(old) == _shallow(new) for old, new in found)


class Swapper:
    """The live functions of one file."""

    def __init__(self, file: str, before: str) -> None:
        self.file = file
        self._before = compile(before, file, "exec")
        gc.unfreeze()  # what is frozen is not among the objects
        self._functions = [(each, _where(each.__code__)) for each in gc.get_objects()
                           if type(each) is FunctionType and each.__code__.co_filename == file]

    def swap(self, after: str) -> None:
        """All of them run what ``after`` says. Raises ``ValueError`` where other functions or closures are needed."""
        found = _pairs(self._before, compile(after, self.file, "exec"))
        if found is None:
            raise ValueError("other functions")
        changed = {_where(old): new for old, new in found}
        if len(changed) > 1 and not self._functions:
            raise ValueError("no live function of that file")
        for function, where in self._functions:
            function.__code__ = changed[where]


def _pairs(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """Each code object with its changed one; None when there are others."""
    inner, changed = list(_inner(old)), list(_inner(new))
    if [code.co_qualname for code in inner] != [code.co_qualname for code in changed]:
        return None
    out = [(old, new)]
    for one, other in zip(inner, changed, strict=True):
        below = _pairs(one, other)
        if below is None:
            return None
        out += below
    return out


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (const for const in code.co_consts if isinstance(const, CodeType))


def _where(code: CodeType) -> tuple[str, int, bytes]:
    return code.co_qualname, code.co_firstlineno, code.co_linetable


def _shallow(code: CodeType) -> tuple[object, ...]:
    """What it does itself, wherever it stands; constants by their text, since 1 == True."""
    consts = [repr(const) for const in code.co_consts if not isinstance(const, CodeType)]
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
