"""The file: everything inside, nothing from elsewhere, no text of a run becomes markup, small with 100,000 events."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.chaos.check import of_history
from harness.chaos.cli import main
from harness.chaos.subcommand import PASSED, USAGE
from harness.histories.events import INVOKE, OK, Event, operations
from harness.pages.content import WholeRun, content
from harness.pages.files import made, page


class Tags(HTMLParser):
    """The tags of a page, and what they point at."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.points += [value for name, value in attrs if name in ("src", "href") and value]
        self.ids |= {found["id"]} - {None} if "id" in found else set()  # type: ignore[arg-type]


def run_directory(root: Path) -> Path:
    events = [{"type": "invoke", "process": 0, "f": "write", "value": "</script><b>"},
              {"type": "ok", "process": 0, "f": "write", "value": "</script><b>"}]
    (root / "history.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    (root / "nemesis.jsonl").write_text('{"time_ns": 0, "fault": "kill", "on": ["n1"], "phase": "once"}\n')
    (root / "run.json").write_text('{"scenario": "kill-everything", "repeat": "chaos run kill-everything --seed 3"}')
    (root / "verdict.json").write_text('{"valid": true, "checkers": {"queue": {"valid": true, "why": "w"}}}')
    (root / "shrunk.toml").write_text("kill = 1\n")
    return root


def test_all_is_inside_and_nothing_of_a_run_is_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_directory(tmp_path))]) == PASSED
    text = (tmp_path / "page.html").read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.points == []
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert text.count("</script>") == 2
    assert not re.search(r"/\*(STYLE|SCRIPT|DATA)\*/", text)
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert data["operations"]["value"] == ["</script><b>"]
    assert (data["run"]["scenario"], data["shrunk"]) == ("kill-everything", "kill = 1\n")
    assert data["faults"][0]["name"] == "kill"
    assert set(re.findall(r'\$\("([\w-]+)"\)', text)) <= tags.ids, "the script finds what it fills"


def test_where_it_is_is_told_to_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_directory(tmp_path)), "--json"]) == PASSED
    page_file = tmp_path / "page.html"
    assert json.loads(capsys.readouterr().out) == {"page": str(page_file), "bytes": page_file.stat().st_size}


def test_a_history_alone_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "h.edn").write_text(
        "{:type :invoke, :process 0, :f :read}\n{:type :ok, :process 0, :f :read, :value 7}\n")
    text = made(tmp_path / "h.edn", of_history)
    assert '"failing":0' in text and "h.edn" in text, "it is judged"
    (tmp_path / "h.edn").write_text("{:type :invoke, :process 0, :f :fly}\n")
    assert '"promises":[]' in made(tmp_path / "h.edn", of_history), "and shown where nothing can judge it"


def test_messages_beside_a_history_are_drawn(tmp_path: Path) -> None:
    """As ``explore`` leaves them: beside a file of that name alone."""
    for name in ("seed-1.history.jsonl", "other.jsonl"):
        (tmp_path / name).write_text('{"type": "invoke", "process": 0, "f": "read", "value": null}\n')
    (tmp_path / "seed-1.messages.jsonl").write_text('{"from": "a", "to": "b", "sent_ns": 3000, "what": "Vote"}\n')
    assert '"messages":[["a","b",3,null,"Vote"]]' in made(tmp_path / "seed-1.history.jsonl", of_history)
    assert '"messages":[]' in made(tmp_path / "other.jsonl", of_history)


def test_a_hundred_thousand_events_are_below_five_megabytes() -> None:
    events = [Event(2 * number + side, (INVOKE, OK)[side], number % 20, "write", f"k{number % 9}", number,
                    number * 1_000_000 + side * 400_000) for number in range(50_000) for side in (0, 1)]
    text = page(content(WholeRun("big", {}, {}, operations(events))))
    assert len(text) < 5_000_000


@pytest.mark.parametrize(("name", "content", "words"), [
    ("nemesis.jsonl", "{}\n", "lacks 'time_ns'"), ("nemesis.jsonl", "3\n", "what cannot be read: 3 is no object"),
    ("nemesis.jsonl", '{"fault": "kill", "phase": "once", "time_ns": "3"}\n', "time_ns is a whole number, not '3'"),
    ("messages.jsonl", '{"from": "a", "to": "b", "sent_ns": "3"}\n', "nemesis.jsonl or messages.jsonl has what"),
    ("nemesis.jsonl", "{\n", "nemesis.jsonl is no JSON"),
    ("verdict.json", "{", "verdict.json is no JSON"), ("run.json", "3", "run.json is no object"),
])
def test_files_that_are_none(
    tmp_path: Path, name: str, content: str, words: str, capsys: pytest.CaptureFixture[str],
) -> None:
    (run_directory(tmp_path) / name).write_text(content)
    assert main(["report", str(tmp_path)]) == USAGE
    assert words in capsys.readouterr().err
