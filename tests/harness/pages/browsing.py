"""A page in a headless Chromium that is clicked as by a person: the browser itself makes the events.

It speaks the protocol of Chromium's developer tools over two pipes, as ``--remote-debugging-pipe`` has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.analysis.report.browser import QUIET, browser

_PLUMBING = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
"""Chromium hears at 3 and answers at 4, whatever the numbers are here."""


@attrs.define
class Window:
    """One page of one browser."""

    _to: int
    _answers: Iterator[dict[str, Any]]
    _session: str = ""
    _number: int = 0
    _told: set[str] = attrs.field(factory=set)
    """Names of events that came between answers."""

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of one command."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params} | (
            {"sessionId": self._session} if self._session else {})
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        answer = self._next()
        while answer.get("id") != self._number:
            answer = self._next()
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        message = next(self._answers)
        self._told.add(message.get("method", ""))
        return message

    def open(self, page: Path) -> None:
        """Returns when it has been drawn."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Emulation.setDeviceMetricsOverride", width=1180, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Page.enable")
        self._told.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while "Page.loadEventFired" not in self._told:
            self._next()
        self.value("new Promise(done => { const look = () => document.getElementById('view')?.textContent ? done(1) : "
                   "setTimeout(look, 20); look(); })")

    def value(self, script: str) -> Any:
        """Of an expression, once what it promises is there."""
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def drawn(self, script: str) -> Any:
        """The same, after the page has drawn what was asked for."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        return self.value(script)

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element that is brought into sight."""
        left, top, width, height = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); "
            "return [b.left, b.top, b.width, b.height]; })()")
        return left, top, width, height

    def mouse(self, kind: str, x: float, y: float) -> None:
        """``kind``: Moved, Pressed or Released."""
        button = {} if kind == "Moved" else {"button": "left", "clickCount": 1}
        self.ask("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **button)

    def click(self, selector: str) -> None:
        left, top, width, height = self.box(selector)
        assert width and height, f"{selector} is not to be seen"
        for kind in ("Moved", "Pressed", "Released"):
            self.mouse(kind, left + width / 2, top + height / 2)


@contextmanager
def window(page: Path) -> Iterator[Window]:
    """A page in a browser of its own, which ends with the block."""
    command = browser()
    assert command is not None
    hears, to = os.pipe()
    answers, tells = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, open(answers) as told, subprocess.Popen(
            ["bash", "-c", _PLUMBING, "bash", str(hears), str(tells), "timeout", "200", command, *QUIET,
             "--remote-debugging-pipe", f"--user-data-dir={profile}"],
            pass_fds=(hears, tells), stderr=subprocess.DEVNULL) as process:
        os.close(hears)
        os.close(tells)
        try:
            made = Window(to, _messages(told.fileno()))
            made.open(page)
            yield made
        finally:
            os.close(to)  # which ends it
            process.wait(30)


def _messages(answers: int) -> Iterator[dict[str, Any]]:
    held = b""
    while more := os.read(answers, 1 << 16):
        *whole, held = (held + more).split(b"\0")
        yield from map(json.loads, whole)
