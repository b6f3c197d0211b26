"""What was measured, module by module: the floors, which only rise, and which test asks a module."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from benchmarks.structure import PACKAGES

ROOT: Final = Path(__file__).parents[2]
FILE: Final = Path(__file__).with_name("floors.json")
SLACK: Final = 0.02
SLACK_LEAST: Final = 2
"""What a run may miss more than the floor says, as a share and as a number: threads and processes take turns."""


@attrs.frozen
class Row:
    """One module: lines and branches that its package's tests run, all that it has, and the test that runs most."""

    lines: int
    of_lines: int
    branches: int
    of_branches: int
    test: str = ""

    def __add__(self, other: Row) -> Row:
        return Row(self.lines + other.lines, self.of_lines + other.of_lines, self.branches + other.branches,
                   self.of_branches + other.of_branches)

    @property
    def shares(self) -> tuple[float, float]:
        """Of lines and of branches; one where there are none."""
        return (self.lines / self.of_lines if self.of_lines else 1.0,
                self.branches / self.of_branches if self.of_branches else 1.0)


Rows = Mapping[str, Row]


def load(file: Path = FILE) -> dict[str, Row]:
    return {module: Row(*cells) for module, cells in json.loads(file.read_text(encoding="utf-8")).items()}


def store(rows: Rows, file: Path = FILE) -> None:
    lines = (f"{json.dumps(module)}: {json.dumps(attrs.astuple(row))}"
             for module, row in sorted(rows.items()) if row.of_lines)
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def worse(now: Rows, floors: Rows) -> list[str]:
    """Modules below their floor, in words. One without a floor, or that is gone, is not judged."""
    return [f"{module}: {_percent(share)} of its {what}, and the floor is {_percent(floor)}"
            for module, row in now.items() if module in floors
            for what, of, share, floor in zip(("lines", "branches"), (row.of_lines, row.of_branches), row.shares,
                                              floors[module].shares, strict=True)
            if (floor - share) * of > max(SLACK_LEAST, SLACK * of) + 1e-9]


def raised(now: Rows, floors: Rows, package: str) -> dict[str, Row]:
    """The floors, where those of a package are the better of both; modules that are gone are left out."""
    others = {module: row for module, row in floors.items() if not _inside(module, package)}
    return {**others, **{module: better(row, floors[module]) if module in floors else row
                         for module, row in now.items()}}


def better(now: Row, floor: Row) -> Row:
    """Share by share; the test is the one that asks now."""
    lines, branches = ((now if share >= least else floor)
                       for share, least in zip(now.shares, floor.shares, strict=True))
    return Row(lines.lines, lines.of_lines, branches.branches, branches.of_branches, now.test)


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def table(now: Rows, floors: Rows) -> Iterator[str]:
    """Rows of Markdown, the least covered first, the whole last."""
    yield "| module | lines | branches | floor | not run |"
    yield "|---|---:|---:|---:|---:|"
    for module, row in sorted(now.items(), key=lambda pair: (sum(pair[1].shares), pair[0])):
        floor = " and ".join(map(_percent, floors[module].shares)) if module in floors else "none"
        yield (f"| `{module}` | {' | '.join(map(_percent, row.shares))} | {floor} | "
               f"{row.of_lines - row.lines} lines, {row.of_branches - row.branches} branches |")
    total = sum(now.values(), Row(0, 0, 0, 0))
    yield f"| all | {' | '.join(map(_percent, total.shares))} | | {total.of_lines - total.lines} lines |"


def by_package() -> Iterator[str]:
    """The table of the manual."""
    floors = load()
    yield "| package | modules | lines | branches | the least covered modules |"
    yield "|---|---:|---:|---:|---|"
    for package in PACKAGES:
        rows = {module: row for module, row in floors.items() if _inside(module, package)}
        if not rows:
            yield f"| `{package}` | | not recorded | | |"
            continue
        lines, branches = sum(rows.values(), Row(0, 0, 0, 0)).shares
        least = sorted(rows, key=lambda module: (rows[module].shares, module))[:3]
        names = ", ".join(f"`{module.removeprefix(f'{package}.')}` {_percent(rows[module].shares[0])}"
                          for module in least)
        yield f"| `{package}` | {len(rows)} | {_percent(lines)} | {_percent(branches)} | {names} |"


def asked() -> Iterator[str]:
    """The table of the manual: modules that a test of another name asks."""
    yield "| module | the test that runs most of it |"
    yield "|---|---|"
    for module, row in sorted(load().items()):
        folder, _, name = f"tests/{module.replace('.', '/')}".rpartition("/")
        if row.test and row.test != f"{folder}/test_{name}.py":
            yield f"| `{module}` | `{row.test}` |"


def _percent(share: float) -> str:
    """Rounded down: 100 % is all."""
    return f"{int(share * 100 + 1e-9)} %"
