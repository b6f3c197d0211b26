"""Verdicts on generated expressions, ours beside those of RocketMQ's released filter.

As a command it compares more: ``python -m tests.broker.filters.test_java --runs 1000000 --seed 1``.
"""

from __future__ import annotations

import argparse
import base64
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import trio

from broker.filters.expressions import FilterIllegal, Unreadable, compiled
from harness.processes import java
from tests.broker.filters.generated import as_stored, chance
from tests.harness.processes.rocketmq import current_release

Case = tuple[str, dict[str, str]]
LETTERS = {None: "N", True: "T", False: "F"}


def ours(case: Case) -> str:
    try:
        return LETTERS[compiled(case[0]).evaluate(case[1])]
    except FilterIllegal:
        return "P"
    except Unreadable:
        return "E"


def ours_of_bytes(text: str, raw: bytes) -> str:
    """Whether a message whose properties stand so in the log is wanted."""
    try:
        return "wanted" if compiled(text).matches(raw) else "not wanted"
    except FilterIllegal:
        return "P"


def javas(release: java.Release, here: Path, cases: list[Case] | list[tuple[str, bytes]]) -> str:
    source, classes = Path(__file__).parent / "Verdicts.java", here / "classes"
    if not classes.exists():
        subprocess.run(["javac", "-nowarn", "-proc:none", "-cp", f"{release.jars}/*", "-d", str(classes), str(source)],
                       check=True, timeout=120)
    fields = ((text.encode(), *((values,) if isinstance(values, bytes) else (
        part.encode() for pair in values.items() for part in pair))) for text, values in cases)
    lines = "\n".join(" ".join(base64.b64encode(field).decode() for field in line) for line in fields)
    done = subprocess.run([release.java, "-Xmx256m", "-cp", f"{classes}:{release.jars}/*", "Verdicts"],
                          input=lines + "\n", capture_output=True, text=True, check=True, timeout=600)
    return done.stdout.replace("\n", "")


def compare(release: java.Release, here: Path, seed: int, count: int) -> Counter[str]:
    """How often each verdict was found, on properties and on their bytes; a difference fails."""
    rng = Random(seed)
    cases = [chance(rng) for _ in range(count)]
    theirs = javas(release, here, cases)
    assert len(theirs) == count
    for case, verdict in zip(cases, theirs, strict=True):
        assert (verdict, case) == (ours(case), case)
    stored = [(text, as_stored(rng, values)) for text, values in cases]
    for each, verdict in zip(stored, javas(release, here, stored), strict=True):
        words = {"P": "P", "T": "wanted"}.get(verdict, "not wanted")
        assert (words, each) == (ours_of_bytes(*each), each)
    return Counter(theirs)


@pytest.mark.java
@pytest.mark.slow
def test_generated_expressions_have_javas_verdicts(tmp_path: Path) -> None:
    found = compare(current_release(), tmp_path, seed=17, count=25_000)
    assert found.keys() == set("TFNEP") and min(found.values()) > 500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    release, found = trio.run(java.fetch), Counter[str]()
    with tempfile.TemporaryDirectory() as here:
        for number, begin in enumerate(range(0, args.runs, 50_000)):
            found += compare(release, Path(here), args.seed * 1_000_003 + number, min(50_000, args.runs - begin))
    sys.stdout.write(f"{found.total()} expressions, no difference: {dict(sorted(found.items()))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
