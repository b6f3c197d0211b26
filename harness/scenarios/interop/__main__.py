"""Runs the scenarios with real Java peers.

    python -m harness.scenarios.interop                 all of them
    python -m harness.scenarios.interop --smoke         the short selection
    python -m harness.scenarios.interop -k silent       those with this in their names; with several -k, with each
    python -m harness.scenarios.interop --list          what there is

Each line says ok, FAILED or not run; the last names how many of each. Exit code 0: what could run passed; 1: some
failed; 2: no scenario has that name; 3: Java or Maven is missing, so nothing ran. ``--declared N`` makes it 1 when
fewer than N ran. A scenario that loses a message is not tried again. ``--report FILE`` keeps what came of each, beside
what the file has of others.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import trio

from harness.processes import java
from harness.processes.java import FetchFailed, JavaMissing
from harness.scenarios.interop import (  # noqa: F401  they register their scenarios
    acting,
    admin_commands,
    broker,
    clients,
    codes,
    failover,
    filters,
    first_hour,
    ha,
    hosts,
    metrics,
    mixed,
    operators,
    ownnames,
    popped,
    popping,
    proxied,
    replicas,
    report,
    resigning,
    returning,
    routes,
    store,
    timers,
    tools,
    topics,
    transactions,
    waiting,
    watched,
    young,
)
from harness.scenarios.interop.scenario import SCENARIOS, Lost, NotRun, Scenario, Stage


def main() -> int:
    options = _options()
    chosen = [
        (each, release) for each in SCENARIOS for release in each.releases
        if (each.smoke or not options.smoke) and all(word in each.name for word in options.name)
    ]
    if not chosen:
        print(f"no scenario has {' and '.join(options.name)} in its name; --list tells all names", file=sys.stderr)
        return 2
    if options.list:
        for each, release in chosen:
            print(f"{each.name} [{release}]{' (smoke)' if each.smoke else ''}: {each.about}")
        return 0
    return trio.run(_run, chosen, options)


def _options() -> argparse.Namespace:
    assert __doc__ is not None
    made = argparse.ArgumentParser(
        "python -m harness.scenarios.interop", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("-k", dest="name", action="append", default=[], help="part of a name; several: all of them")
    made.add_argument("--smoke", action="store_true")
    made.add_argument("--list", action="store_true")
    made.add_argument("--retries", type=int, default=1, help="a scenario that failed is tried so often again")
    made.add_argument("--declared", type=int, default=0, help="fail when fewer scenarios ran")
    made.add_argument("--report", type=Path, help="write results to this file")
    made.add_argument("--keep", type=Path, help="keep the directories of failed scenarios here")
    return made.parse_args()


async def _run(chosen: list[tuple[Scenario, str]], options: argparse.Namespace) -> int:
    releases = {}
    try:
        for release in dict.fromkeys(release for _, release in chosen):
            releases[release] = await java.fetch(release)
    except (JavaMissing, FetchFailed) as missing:
        for each, release in chosen:
            print(f"not run  {each.name} [{release}]: {missing}")
        return 3
    passed = failed = 0
    version = (await java.find_tools()).version
    for number, (each, release) in enumerate(chosen, 1):
        print(f"{number}/{len(chosen)} {each.name} [{release}] …", flush=True)
        began = time.monotonic()
        error: Exception | None = None
        try:
            for attempt in range(1 + options.retries):
                error = await _play(each, releases[release], options.keep)
                if error is None:
                    break
                said = "".join(traceback.format_exception(error)).strip()
                print(f"  attempt {attempt + 1}: {said}", flush=True)
                if isinstance(error, Lost):
                    break
        except NotRun as missing:
            print(f"not run  {each.name} [{release}]: {missing}")
            continue
        took = f"{time.monotonic() - began:.0f} s"
        if error is None:
            passed += 1
            print(f"ok       {each.name} [{release}] {took}", flush=True)
        else:
            failed += 1
            print(f"FAILED   {each.name} [{release}] {took}", flush=True)
        if options.report is not None:
            report.write(options.report, [report.Result(
                each.name, release, report.OK if error is None else report.FAILED,
                round(time.monotonic() - began), version, report.today())])
    print(f"{passed} passed, {failed} failed, {len(chosen) - passed - failed} not run")
    return 1 if failed or passed + failed < options.declared else 0


async def _play(each: Scenario, release: java.Release, keep: Path | None) -> Exception | None:
    """Play a scenario. Returns why it failed; None: it passed. Raises ``NotRun``."""
    here = Path(tempfile.mkdtemp(prefix=f"interop-{each.name}-"))
    try:
        with trio.fail_after(each.timeout_s):
            await each.play(Stage(release, here, lambda line: print(f"  {line}", flush=True)))
    except NotRun:
        raise
    except Exception as failure:  # noqa: BLE001  report any failure, and run the next one
        if keep is not None:
            left_out = () if isinstance(failure, Lost) else ("commitlog",)
            shutil.copytree(here, keep / each.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*left_out))
        return failure
    finally:
        await trio.to_thread.run_sync(shutil.rmtree, here, True)
    return None


if __name__ == "__main__":
    sys.exit(main())
