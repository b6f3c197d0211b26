"""``raft-report``: what happened in these logs, as one HTML page.

    raft-report /data/raft --out report.html
    raft-report /data/n0 /data/n1 /data/n2 --traces /var/log/raft --since 2026-11-01 --out november.html
    raft-report hdfs://nn/raft --master spark://host:7077 --out report.html

The logs may be those of running nodes, copies or archives. Exit code 0; with --fail-on, 1 if something that bad was
found; 2 for what cannot be read or run. With --wait, the slow part of a start is over when the report is asked for:

    (sleep 60; echo) | raft-report /data/raft --wait --out report.html
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError, sentence
from analysis.files.finding import find_logs
from analysis.logs import Logs, open_logs
from analysis.report.build import Progress, make
from analysis.report.findings import SEVERITIES
from analysis.report.injected import read_run
from analysis.session import LIGHT, QUIET, session
from analysis.shipping import ship
from analysis.small import are_small
from analysis.source.options import parted
from raft.command import INTERRUPTED
from remoting.daemon.process import piped
from remoting.daemon.version import add_version

REHEARSALS: Final = 1
NO_CODEGEN: Final = "spark.sql.codegen.factoryMode"


def parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    made = argparse.ArgumentParser(
        "raft-report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(made)
    made.add_argument("paths", nargs="+", help="directories with logs, and with trace files unless --traces is given")
    made.add_argument("--out", default="report.html", help="the page to write; default: %(default)s")
    made.add_argument("--traces", action="append", default=[], help="a directory of trace files; may be repeated")
    made.add_argument("--since", type=_time, metavar="TIME", help="leave out what is older; ISO 8601 (UTC) or ms")
    made.add_argument("--until", type=_time, metavar="TIME", help="leave out what is newer")
    made.add_argument("--split", type=_time, metavar="TIME", help="compare before and after; default: the middle")
    made.add_argument("--run", metavar="FILE", help="JSON: what was done to the nodes meanwhile, which is no finding, "
                      "and what clients saw")
    made.add_argument("--title", default="Raft logs")
    made.add_argument("--master", default="", help="of Spark; default: local[*]")
    made.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's")
    made.add_argument("--fail-on", choices=SEVERITIES, help="exit with 1 if something as bad as this is found")
    made.add_argument("--quiet", action="store_true", help="no progress bar")
    made.add_argument("--wait", action="store_true", help="get ready, on what is there now, and make the report when a "
                      "line comes on standard input; without one there is none")
    return made


def _time(text: str) -> int:
    """Reads a time as milliseconds since 1970 UTC."""
    if text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: {error}") from error
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)


def bar(stream: TextIO) -> Progress:
    """A progress bar in a terminal, a line per step elsewhere."""
    began, live = time.monotonic(), stream.isatty()

    def show(done: int, of: int, what: str) -> None:
        seconds = f"{time.monotonic() - began:.0f} s"
        if live:
            filled = 30 * done // of
            stream.write(f"\r\x1b[2K[{'#' * filled}{'.' * (30 - filled)}] {done}/{of}  {seconds}  {what}")
            stream.write("\n" if done == of else "")
        else:
            stream.write(f"{done}/{of} {seconds} {what}\n")
        stream.flush()

    return show


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and make the report."""
    options = parser().parse_args(arguments)
    try:
        if options.wait and not _wait(options):
            return 0
        done = read_run(Path(options.run).read_text(encoding="utf-8"), options.run) if options.run else None
        found = make(_logs(options), options.out, title=options.title, run=done,
                     progress=None if options.quiet else bar(sys.stderr))
    except (AnalysisError, OSError) as error:
        print(f"raft-report: {error}", file=sys.stderr)
        return 2
    except (PySparkException, Py4JError) as error:
        print(f"raft-report: Spark could not do it: {sentence(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("raft-report: interrupted; no page was written", file=sys.stderr)
        return INTERRUPTED
    levels = ", ".join(f"{count} {level}" for level in SEVERITIES
                       if (count := sum(each.count for each in found if each.severity == level)))
    print(f"{options.out}: {levels or 'no'} findings")
    worst = SEVERITIES[: SEVERITIES.index(options.fail_on) + 1] if options.fail_on else ()
    return int(any(each.severity in worst for each in found))


def _logs(options: argparse.Namespace) -> Logs:
    """Open the logs of the command line in a session of their size. Raises as ``session`` and ``open_logs`` do."""
    settings = dict(map(parted, options.conf))
    small = _is_alone(options.master) and are_small(find_logs(options.paths))
    before = SparkSession.getActiveSession()
    if before is not None and options.wait and (before.conf.get(NO_CODEGEN) == LIGHT[NO_CODEGEN]) != small:
        before.stop()  # the logs have grown too large for that session
    spark = session(options.master or ("local[1]" if small else ""), name="raft-report",
                    **{**QUIET, **(LIGHT if small else {}), **settings})
    ship(spark)
    return open_logs(spark, options.paths, traces=options.traces, since_ms=options.since, until_ms=options.until,
                     split_ms=options.split)


class _Told(Exception):
    """A line has come, or the end of standard input."""


def _wait(options: argparse.Namespace) -> bool:
    """Start Spark, and make reports that nobody gets, until a line comes; False: standard input ended without one.

    Whatever hinders that says so when the report is made.
    """
    def go_on(*_: object) -> None:
        if select.select([sys.stdin], [], [], 0)[0]:
            raise _Told

    with suppress(_Told, AnalysisError, OSError, PySparkException, Py4JError), \
            tempfile.TemporaryDirectory() as folder:
        for _ in range(REHEARSALS):
            make(_logs(options), Path(folder) / "report.html", progress=go_on)
    return bool(sys.stdin.readline())


def _is_alone(master: str) -> bool:
    """Return whether Spark will run on this machine alone; files of Spark's installation may say otherwise."""
    named = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT")
    return master.startswith("local") if master else not any(name in os.environ for name in named)


if __name__ == "__main__":
    sys.exit(main())
