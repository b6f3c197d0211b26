"""The page on checking a history, as its reader follows it: its files, its commands, and what they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.chaos.cli import main, parser
from harness.chaos.subcommand import BROKEN, PASSED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "check-a-history.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "chaos.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_page_is_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(block("csv"))
    Path("queue.jsonl").write_text(block("json"))
    Path("counter.py").write_text(block("python"))
    Path("counts.csv").write_text("client,op,start,end,result\na,increment,1,2,\nb,increment,3,,\na,value,5,6,2\n")
    Path("history.edn").write_text("{:type :invoke, :process 0, :f :read}\n{:type :ok, :process 0, :f :read}\n")
    said = []
    for command in re.findall(r"^    chaos (.*)$", PAGE, re.MULTILINE):
        capsys.readouterr()
        expected = BROKEN if command in ("check log.csv", "check queue.jsonl") else PASSED
        assert main(command.split()) == expected, command
        said.append(capsys.readouterr().out)
    for text in re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        assert text in said
    assert Path("page.html").exists()


def test_the_reference_names_every_option_of_a_check() -> None:
    options = parser()._subparsers._group_actions[0].choices["check"]._option_string_actions  # type: ignore[union-attr,index]
    own = {name for name in options if name.startswith("--") and not name.startswith(("--no-keyed", "--help"))}
    missing = {name for name in own if name not in REFERENCE and name not in PAGE}
    assert not missing
