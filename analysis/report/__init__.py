"""The report: one self-contained HTML page on what happened, findings first.

    from analysis.report import report
    report(["/data/raft"], "report.html")                 # makes a session of its own, local[*]
    report(logs, "report.html")                           # in a notebook, on the logs that are open
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from analysis.logs import Logs, open_logs
from analysis.report.build import Progress, make
from analysis.report.findings import Bounds, Finding, findings
from analysis.session import session

__all__ = ["Bounds", "Finding", "findings", "report"]


def report(
    logs: Logs | str | Sequence[str], out: str | os.PathLike[str], *, master: str = "", title: str = "Raft logs",
    bounds: Bounds | None = None, progress: Progress | None = None,
) -> list[Finding]:
    """Write the page to ``out``; what it found, the worst first.

    Raises ``JavaMissing``, ``NothingToRead`` and ``OSError``.
    """
    if not isinstance(logs, Logs):
        logs = open_logs(session(master), logs)
    return make(logs, out, title=title, bounds=bounds, progress=progress)
