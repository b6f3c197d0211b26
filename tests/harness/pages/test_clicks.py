"""The page of a run under a real mouse: buttons and the timeline show another stretch, dots say what they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.chaos.cli import main
from harness.chaos.subcommand import PASSED
from tests.analysis.report.browser import browser
from tests.harness.pages.browsing import window

MS = 1_000_000
VIEW = "document.getElementById('view').textContent"
TIP = "document.getElementById('tip')"


def run_directory(root: Path) -> Path:
    """Ten seconds: one operation each 100 ms; one read of 5 s to 5.08 s that no order explains."""
    events = []
    for number in range(100):
        at = number * 100 * MS
        asked: dict[str, Any] = {"process": 0, "f": "read" if number == 50 else "write", "key": "x"}
        told: dict[str, Any] = {"value": 9999} if number == 50 else {"value": number}
        events += [asked | {"type": "invoke", "time_ns": at} | ({} if number == 50 else told),
                   asked | {"type": "ok", "time_ns": at + 80 * MS} | told]
    (root / "history.jsonl").write_text("".join(
        json.dumps({"index": index} | event) + "\n" for index, event in enumerate(events)))
    (root / "nemesis.jsonl").write_text('{"time_ns": 2000000000, "fault": "kill", "on": ["n1"], "phase": "once"}\n')
    (root / "run.json").write_text(json.dumps({
        "sandbox": "user", "cannot": ["cannot lose what was not synced: loop devices need root"], "left out": []}))
    return root


@pytest.mark.slow
def test_clicks_show_another_stretch(tmp_path: Path) -> None:
    if browser() is None:
        pytest.skip("not run: no Chromium")
    assert main(["check", str(run_directory(tmp_path)), "--json"]) != PASSED
    assert main(["report", str(tmp_path)]) == PASSED
    with window(tmp_path / "page.html") as seen:
        assert seen.value("document.getElementById('about').textContent") == (
            "in namespaces, as a user · here one cannot lose what was not synced: loop devices need root")
        whole = seen.drawn(VIEW)
        assert whole.startswith("0 µs to ")
        views = []
        for name in ("in", "left", "right", "out", "all"):
            seen.click(f"button[data-do={name}]")
            views.append(seen.drawn(VIEW))
        closer, earlier, later, wider, again = views
        assert later == closer and again == wider == whole and len({whole, closer, earlier}) == 3
        left, top, width, height = seen.box("#timeline")
        seen.mouse("Moved", left + 0.3 * width, top + height / 2)
        seen.mouse("Pressed", left + 0.3 * width, top + height / 2)
        seen.mouse("Moved", left + 0.5 * width, top + height / 2)
        seen.mouse("Released", left + 0.5 * width, top + height / 2)
        assert seen.drawn(VIEW) not in (whole, closer, earlier)
        seen.click("#to-failure")
        assert seen.drawn(VIEW) == "4.36 s to 5.72 s"
        left, top, width, height = seen.box("#timeline")
        seen.mouse("Moved", left + 64 + (width - 74) / 2, top + height / 2)
        assert seen.drawn(f"{TIP}.hidden") is False
        assert "read x" in seen.value(f"{TIP}.textContent")
