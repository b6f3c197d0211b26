"""Runs the fuzz targets, each in a process of its own, and prints one line of JSON for each.

    python -m fuzz                                         # every target, a minute each
    python -m fuzz --target wire --runs 10000000           # one target, so many executions
    python -m fuzz --target wire --input CZoBAQ==          # one input again, without the fuzzing engine

A line gives the target, executions, executions per second, peak memory, and, where a promise was broken, the error and
the input in base64. Memory is bounded: a target that exceeds ``--memory-mb`` fails. Exit status 1: something broke.
Needs atheris, except for ``--input``.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SLOWEST_SECONDS = 10
"""One input that takes longer has found something too."""


def main() -> int:
    args = _arguments()
    if args.inside:
        _fuzz_inside(args.target[0], args.engine)
    if args.input is not None:
        from fuzz.targets import TARGETS

        (name,) = args.target
        TARGETS[name].check(base64.b64decode(args.input, validate=True))
        return 0
    with ThreadPoolExecutor(args.jobs) as pool:
        broken = 0
        for line in pool.map(lambda name: _run(name, args), args.target or _names()):
            print(json.dumps(line), flush=True)
            broken += line["ok"] is not True
    return 1 if broken else 0


def _arguments() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser("fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", default=[], help="a target; may be repeated; default: all")
    parser.add_argument("--runs", type=int, default=-1, help="executions per target; default: until the time is over")
    parser.add_argument("--seconds", type=int, default=0, help="per target; default: 60, or no limit with --runs")
    parser.add_argument("--jobs", type=int, default=1, help="targets at one time")
    parser.add_argument("--memory-mb", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="folder that keeps interesting inputs, one folder per target in it")
    parser.add_argument("--input", help="base64 of one input; runs it alone")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--engine", action="append", default=[], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:  # the targets must not be imported yet: importing is when they are instrumented
        return args
    if unknown := set(args.target) - set(_names()):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(_names())}")
    if args.input is not None and len(args.target) != 1:
        parser.error("--input needs one --target")
    if not args.seconds and args.runs < 0:
        args.seconds = 60
    return args


def _names() -> list[str]:
    from fuzz.targets import TARGETS

    return list(TARGETS)


def _run(name: str, args: argparse.Namespace) -> dict[str, Any]:
    from fuzz.targets import TARGETS

    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        corpus = args.corpus / name if args.corpus else Path(folder) / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(target.seeds()):
            (corpus / f"seed-{number}").write_bytes(seed)
        engine = [
            f"-runs={args.runs}", f"-max_total_time={args.seconds}", f"-seed={args.seed}",
            f"-max_len={target.max_bytes}", f"-rss_limit_mb={args.memory_mb}", f"-timeout={SLOWEST_SECONDS}",
            f"-artifact_prefix={folder}/found-", "-print_final_stats=1", "-verbosity=1", str(corpus),
        ]
        command = [sys.executable, "-m", "fuzz", "--inside", "--target", name, *(f"--engine={each}" for each in engine)]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        seconds = time.monotonic() - started
        line = _line(name, target.about, done, seconds)
        if found := sorted(Path(folder).glob("found-*")):
            line["input"] = base64.b64encode(found[0].read_bytes()).decode()
            line["again"] = f"python -m fuzz --target {name} --input {line['input']}"
        return line


def _line(name: str, about: str, done: subprocess.CompletedProcess[str], seconds: float) -> dict[str, Any]:
    text = done.stdout + done.stderr

    def last(pattern: str) -> int:
        found = re.findall(pattern, text)
        return int(found[-1]) if found else 0

    executions = last(r"stat::number_of_executed_units:\s+(\d+)")
    line: dict[str, Any] = {
        "target": name, "about": about, "ok": done.returncode == 0 and executions > 0, "executions": executions,
        "per_second": round(executions / seconds), "seconds": round(seconds, 1),
        "peak_rss_mb": last(r"stat::peak_rss_mb:\s+(\d+)"), "coverage": last(r"cov: (\d+)"),
        "corpus": last(r"corp: (\d+)"),
    }
    if not line["ok"]:
        trace = text[text.rfind("Traceback") :] if "Traceback" in text else text
        line["error"] = trace[-2_000:]
    return line


def _fuzz_inside(name: str, engine: list[str]) -> None:
    """Never returns: the engine ends the process."""
    import atheris

    logging.disable()  # what is logged of each input would be most of the work
    with atheris.instrument_imports(include=["raft", "remoting", "controller", "broker", "analysis"]):
        from fuzz.targets import TARGETS
    atheris.Setup([name, *engine], TARGETS[name].check)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
