"""The page of a run under a real mouse: buttons and the timeline show another stretch, dots say what they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.chaos.cli import main
from harness.chaos.subcommand import PASSED
from harness.histories.events import INVOKE, OK, Event, operations
from harness.pages.content import WholeRun, content
from harness.pages.files import page
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


PARTS = {
    "badge": "broken", "about": "in namespaces, as a user", "command": "chaos run mine --seed 3",
    "promises": "The shortest beginning that fails has", "around-about": "Around the operation that no order explains",
    "spacetime": "9999", "gaps": "process 0", "recoveries": "accepted", "shrunk": "kill n1, for 1 s",
    "fault-table": "n1"}
"""By id: what a part of the page has to say."""
SHOWN = """(id => { const e = document.getElementById(id); return e.getClientRects().length ? e.textContent : ''; })"""
"""The words of a part that is not hidden."""
DRAWN = """(id => { const c = document.getElementById(id); const seen = new Set(
    new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)); return seen.size; })"""
"""How many colours a canvas has."""
BRIGHT = """(() => { const found = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
    return (found[0] + found[1] + found[2]) / 3; })()"""
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1180, 390], ids=["desk", "phone"])
def test_every_part_is_shown_on_a_desk_and_a_phone_in_light_and_dark(dark: bool, width: int, tmp_path: Path) -> None:
    if browser() is None:
        pytest.skip("not run: no Chromium")
    run = json.loads((run_directory(tmp_path) / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(run | {"command": "chaos run mine", "seed": 3}))
    (tmp_path / "shrunk.txt").write_text("kill n1, for 1 s\n")
    assert main(["report", str(tmp_path)]) == PASSED
    with window(tmp_path / "page.html") as seen:
        seen.ask("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        seen.ask("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=2, mobile=width < 600)
        assert seen.drawn(WIDER) <= 0, "nothing is beyond the edge of the screen"
        assert (seen.value(BRIGHT) < 80) is dark and (seen.value(BRIGHT) > 200) is not dark
        for part, words in PARTS.items():
            assert words in seen.value(f"{SHOWN}('{part}')"), part
        for canvas in ("timeline", "throughput", "latency"):
            assert seen.value(f"{DRAWN}('{canvas}')") > 5, canvas


@pytest.mark.slow
def test_a_hundred_thousand_events_open(tmp_path: Path) -> None:
    if browser() is None:
        pytest.skip("not run: no Chromium")
    events = [Event(2 * number + side, (INVOKE, OK)[side], number % 20, "write", f"k{number % 9}", number,
                    number * MS + side * 400_000) for number in range(50_000) for side in (0, 1)]
    (tmp_path / "page.html").write_text(page(content(WholeRun("big", {}, {}, operations(events)))))
    with window(tmp_path / "page.html") as seen:
        assert seen.drawn(VIEW).startswith("0 µs to 50")
        assert "50,000" in seen.value("document.getElementById('tiles').textContent")
        seen.click("button[data-do=in]")
        assert not seen.drawn(VIEW).startswith("0 µs")
        assert seen.value(f"{DRAWN}('timeline')") > 5


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
