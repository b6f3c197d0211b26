"""Bugs planted in one module each, in a process of its own whose loader changes it; no copy of the tree.

A corpus names for each bug what must notice it: predicates of a simulation, or tests.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

import attrs
import pytest

from tests.raft.bugs.mutant import Mutant

if TYPE_CHECKING:
    from raft.sim.campaign import Program

ROOT = Path(__file__).parents[2]


@attrs.frozen
class Planted:
    """A mutant of one file."""

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]
    """Predicates, one of which must fail; or pytest ids, one of which must turn red."""
    profile: str = "swarm"

    def apply(self, text: str) -> str:
        """Raises ``ValueError`` as a mutant does."""
        return Mutant(self.name, self.file, self.old, self.new, ()).apply(text)

    @property
    def by_simulation(self) -> bool:
        return self.caught_by[0].startswith("INV_")


@attrs.frozen
class Corpus:
    """``program`` imports what is simulated: after the planting, not before."""

    module: str
    """``python -m module`` runs it."""
    planted: Sequence[Planted]
    program: Callable[[], Program]
    events_max: int


class _Loader(SourceFileLoader):
    """Compiles the changed source of one module."""

    planted: Planted

    def get_code(self, fullname: str) -> CodeType | None:
        source = self.planted.apply(Path(self.path).read_text(encoding="utf-8"))
        return compile(source, self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds that module before anything else does."""

    def __init__(self, planted: Planted) -> None:
        self._planted = planted
        self.name = planted.file.removesuffix(".py").replace("/", ".")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _Loader(fullname, str(ROOT / self._planted.file))
        loader.planted = self._planted
        return importlib.machinery.ModuleSpec(fullname, loader, origin=loader.path)


def can_be_planted(planted: Planted, predicates: Collection[str]) -> None:
    """Fails where its place is gone, or a test or a predicate that is to notice it."""
    planted.apply((ROOT / planted.file).read_text(encoding="utf-8"))
    for test in planted.caught_by:
        if not test.startswith("INV_"):
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
        else:
            assert test in predicates


def planted_at_import(planted: Planted) -> None:
    """From here on its module is loaded with the bug in it."""
    finder = _Finder(planted)
    assert finder.name not in sys.modules, "too late"
    sys.meta_path.insert(0, finder)


def plant(planted: Planted, corpus: Corpus) -> str:
    """In a fresh process: what becomes of it, in words that begin with "caught" where it is."""
    planted_at_import(planted)
    return _simulate(planted, corpus) if planted.by_simulation else _test(planted)


def _simulate(planted: Planted, corpus: Corpus) -> str:
    from raft.sim.campaign import run
    from raft.sim.tape import Tape

    program = corpus.program()
    events, seed, others = 0, 0, set()
    asserted = f"AssertionError in {Path(planted.file).name}:"
    while events < corpus.events_max:
        seed += 1
        result = run(Tape(seed), planted.profile, program=program)
        events += result.events
        if result.failure in planted.caught_by or (result.failure or "").startswith(asserted):
            return f"caught by {result.failure} in seed {seed}, after {events:,} events"
        if result.failure:
            others.add(result.failure)
    return f"SURVIVED {events:,} events{'; found instead: ' + ', '.join(sorted(others)) if others else ''}"


def _test(planted: Planted) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *planted.caught_by])
    if status == pytest.ExitCode.TESTS_FAILED:
        return f"caught by {planted.caught_by[0].rpartition('::')[2]}"
    return f"SURVIVED its tests ({status})\n{said.getvalue()[-800:]}"


def _apart(number: int, corpus: Corpus) -> tuple[Planted, str, float]:
    """Plant one in another process."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", corpus.module, "--one", str(number)], cwd=ROOT,
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    said = done.stdout.strip() or f"BROKEN: {done.stderr[-600:]}"
    return corpus.planted[number], said, time.monotonic() - started


def main(corpus: Corpus, arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when one is not caught by what is named for it."""
    parser = argparse.ArgumentParser(prog=f"python -m {corpus.module}", description=main.__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="those whose names contain this")
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one is not None:
        sys.stdout.write(plant(corpus.planted[options.one], corpus) + "\n")
        return 0
    chosen = [number for number, planted in enumerate(corpus.planted)
              if options.only in planted.name and number >= options.first]
    caught = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for planted, said, seconds in pool.map(lambda number: _apart(number, corpus), chosen):
            caught += said.startswith("caught")
            sys.stdout.write(f"{planted.name:54} {seconds:5.1f} s  {said}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{caught} of {len(chosen)} caught\n")
    return int(caught < len(chosen) or not chosen)
