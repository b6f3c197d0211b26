"""The public histories of other checkers, judged by ours: does each verdict agree with theirs?

    git clone https://github.com/anishathalye/porcupine && git clone https://github.com/jepsen-io/knossos
    python -m benchmarks.public_histories --porcupine porcupine --knossos knossos

Porcupine's tests say which of its histories are linearizable; Knossos keeps its own in folders named good and bad. Exit
code 1: a verdict differs. A history in which nothing was ever answered is unknown here: it is told apart.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs

from harness.chaos.check import of_history
from harness.histories.events import HistoryError

EXPECTED = re.compile(r"checkJepsen\(t, (\d+), (true|false)\)")


@attrs.frozen
class Known:
    """A history, and whether its owners say that it is linearizable."""

    path: Path
    linearizable: bool


def porcupine(root: Path) -> Iterator[Known]:
    """etcd's registers as its tests judge them, and key-value stores named ok and bad."""
    for number, right in EXPECTED.findall((root / "porcupine_test.go").read_text()):
        yield Known(root / "test_data" / "jepsen" / f"etcd_{int(number):03d}.log", right == "true")
    for path in sorted((root / "test_data" / "kv").glob("*.txt")):
        yield Known(path, path.stem.endswith("ok"))


def knossos(root: Path) -> Iterator[Known]:
    """By the folder's name. Its one history of transactions over several keys is no object of ours."""
    for path in sorted((root / "data").glob("*/*/*.edn")):
        if path.parts[-3] != "multi-register":
            yield Known(path, path.parts[-2] == "good")


def compared(histories: Iterator[Known]) -> Counter[str]:
    """How many verdicts agree, differ, are unknown; prints all that do not agree."""
    counts: Counter[str] = Counter()
    for known in histories:
        try:
            told = of_history(known.path).get("valid", "unknown")
        except HistoryError as error:
            told = f"unknown: {error}"
        same = "agrees" if told is known.linearizable else "differs" if isinstance(told, bool) else "unknown"
        counts[same] += 1
        if same != "agrees":
            print(f"{known.path}: {told}; its owners say {known.linearizable}")
    return counts


def main() -> int:
    """Judge what was given."""
    parser = argparse.ArgumentParser(description="Judge other checkers' public histories.")
    parser.add_argument("--porcupine", type=Path, metavar="CHECKOUT")
    parser.add_argument("--knossos", type=Path, metavar="CHECKOUT")
    options = parser.parse_args()
    differing = 0
    for name, histories in (("porcupine", porcupine), ("knossos", knossos)):
        root = getattr(options, name)
        if root is not None:
            began = time.perf_counter()
            counts = compared(histories(root))
            differing += counts["differs"]
            print(f"{name}: {', '.join(f'{count} {what}' for what, count in sorted(counts.items()))}; "
                  f"{time.perf_counter() - began:.1f} s")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
