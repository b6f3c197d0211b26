"""The page of a run's directory: reads what the run wrote, writes one HTML file. Knows no checker's workings.

Everything is inside: style, script and data. The look is that of the report on logs, whose style sheet it shares.
Three texts take the place of three marks, without a template library: none of them is escaped as HTML: the content of
a script is not read as HTML, and the page makes all that it shows with ``textContent``. Data hold no ``<``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson

from harness.checkers.recovery import faults_from_json, faults_of, recoveries
from harness.histories.events import HistoryError, operations
from harness.histories.reading import open_history
from harness.pages.content import Seen, WholeRun, content, merged, messages_from_json
from harness.torture.directory import GROUPS

SHRUNK: Final = ("shrunk.toml", "shrunk.json", "shrunk.txt")


def made(directory: Path, judge: Callable[[Path], Mapping[str, Any]]) -> str:
    """The page of a run, or of a history alone; ``judge`` says what its verdict is where no ``verdict.json`` does.

    Raises ``HistoryError`` and ``OSError``.
    """
    if (directory / GROUPS).is_dir():
        return page(content(_together(directory)))
    beside = directory if directory.is_dir() else directory.parent / "-"
    found = _seen(directory, beside)
    verdict = _object(beside / "verdict.json") or judge(directory)
    told = WholeRun(
        directory.name, _object(beside / "run.json"), verdict, found.operations, found.faults, found.recoveries,
        messages_from_json(_messages(directory)),
        next(((beside / name).read_text() for name in SHRUNK if (beside / name).exists()), ""))
    return page(content(told))


def _seen(directory: Path, beside: Path) -> Seen:
    events = list(open_history(directory).events)
    rows = _lines(beside / "nemesis.jsonl")
    faults = faults_from_json(rows) if rows else faults_of(events)
    return Seen(operations(events), faults, recoveries(events, faults))


def _messages(directory: Path) -> list[dict[str, Any]]:
    """The rows of a run's ``messages.jsonl``; of ``X.history.jsonl`` alone, those of ``X.messages.jsonl`` beside it."""
    if directory.is_dir():
        return _lines(directory / "messages.jsonl")
    name = directory.name.replace("history", "messages")
    return _lines(directory.with_name(name)) if name != directory.name else []


def _together(directory: Path) -> WholeRun:
    """A run of groups, each with a directory of its own."""
    places = sorted(each for each in (directory / GROUPS).iterdir() if each.is_dir())
    asked = _object(directory / "asked.json").get("groups") or [each.name for each in places]
    return merged(directory.name, _object(directory / "run.json"), _object(directory / "verdict.json"),
                  {each: _seen(directory / GROUPS / each, directory / GROUPS / each) for each in asked})


def page(value: Mapping[str, Any]) -> str:
    """One HTML file that shows ``content``'s value."""
    folder = resources.files(__package__)
    spec = find_spec("analysis")  # do not import it: its libraries are an extra
    assert spec is not None and spec.origin is not None, "the packages come together"
    style = (Path(spec.origin).parent / "report" / "style.css").read_text() + folder.joinpath("page.css").read_text()
    data = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode().replace("<", "\\u003c")
    text = folder.joinpath("page.html").read_text()
    for name, inside in (("STYLE", style), ("SCRIPT", folder.joinpath("page.js").read_text()), ("DATA", data)):
        text = text.replace(f"/*{name}*/", inside, 1)
    return text


def _object(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise HistoryError(0, f"{path.name} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise HistoryError(0, f"{path.name} is no object")
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            rows.append(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            raise HistoryError(number, f"{path.name} is no JSON: {error}") from None
    return rows
