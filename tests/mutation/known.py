"""Mutants that are known to survive, with the reason, and the page that lists them."""

from __future__ import annotations

import json

import attrs

from tests.mutation.changes import Change
from tests.mutation.modules import CORES
from tests.raft.bugs.run_mutants import ROOT

FILE = ROOT / "tests/mutation/survivors.json"
PAGE = ROOT / "docs/reference/machine-mutants.md"

HEAD = """# The machine's mutants

Beside the bugs that people plant ([of others](historical-bugs.md), [of controllers](controller-defects.md), [of
replication](replication-defects.md)), a machine changes the cores everywhere: each comparison, each `and`, `or` and
`not`, each number, each operator, each loop, and each statement, which it leaves out. Every change must turn one of the
module's quick tests red. [Cosmic Ray](https://cosmic-ray.readthedocs.io) makes the changes; what decides nothing at run
time (annotations, assertions, traces) is spared.

```sh
make mutants-machine PACKAGE=raft
make mutants-machine PACKAGE=controller.metadata
make mutants-machine PACKAGE=raft/quorum.py       # one module, or any other package
make mutants-machine PACKAGE=raft SLICE=1/7       # a seventh of them: for a package that takes longer than a night
make mutants-machine PACKAGE=raft ARGS=--resume   # go on where the last run ended: what it killed stays killed
```

The tests of a module are collected once, in a process that then waits. For each change inside a function it forks, puts
the changed code in the place of the old, and runs the tests that run the changed lines. A test that takes more than ten
times its own time hangs, and counts as red. A change that no test runs survives at once. What is done while a module is
imported (constants, defaults, decorators) is changed in the file instead, and all tests of the module are asked in a
process of their own.

A run fails for a survivor that is not listed here, and for one listed here that is killed: the list may only shrink.
`tests/mutation/modules.py` says which tests judge which module. `survivors.json` beside it is what this page is written
from, by a run with `--update`.
"""


@attrs.define
class Known:
    """What is committed."""

    mutants: dict[str, int]
    """How many a whole run of a module had; no entry: it was never run as a whole."""
    survivors: dict[str, dict[str, str]]
    """Module -> name of a change -> why no test can, or need, tell it apart."""

    @staticmethod
    def name(change: Change) -> str:
        return f"{change.place}: {change.old} -> {change.new}"


def load() -> Known:
    whole = json.loads(FILE.read_text(encoding="utf-8"))
    return Known(whole["mutants"], whole["survivors"])


def store(known: Known) -> None:
    survivors = {module: dict(sorted(listed.items())) for module, listed in sorted(known.survivors.items()) if listed}
    text = json.dumps({"mutants": dict(sorted(known.mutants.items())), "survivors": survivors}, indent=1,
                      ensure_ascii=False)
    FILE.write_text(text + "\n", encoding="utf-8")


def render() -> str:
    known = load()
    lines = [HEAD, "## Run so far", "", "| Module | Mutants | Survivors |", "|---|---:|---:|"]
    for module in sorted({*CORES, *known.mutants}):
        count = known.mutants.get(module)
        left = len(known.survivors.get(module, {}))
        lines.append(f"| `{module}` | {count if count is not None else 'not run yet'} | "
                     f"{left if count is not None else ''} |")
    lines += ["", "## Survivors, and why", "", "| Module | In | Was | Is | Why it survives |", "|---|---|---|---|---|"]
    for module, listed in sorted(known.survivors.items()):
        for name, why in sorted(listed.items()):
            place, _, change = name.partition(": ")
            old, _, new = change.partition(" -> ")
            cells = (f"`{text}`".replace("|", "\\|") for text in (module, place, old, new))
            lines.append(f"| {' | '.join(cells)} | {why} |")
    return "\n".join(lines) + "\n"


def page() -> None:
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    page()
