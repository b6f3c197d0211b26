"""The plug-in's options and header; the page on exploring runs its fixture."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raft import pytest_plugin
from raft.pytest_plugin import OPTIONS, corpus, given, pytest_report_header


def config(here: Path, **options: Any) -> Any:
    said = {f"explore_{name}": None for name in (*OPTIONS, "replay", "corpus")}
    said |= {f"explore_{name}": value for name, value in options.items()}
    return SimpleNamespace(rootpath=here, getoption=said.__getitem__)


def test_what_the_command_line_says_goes_by_the_names_of_explore(tmp_path: Path) -> None:
    assert given(config(tmp_path)) == {}
    assert given(config(tmp_path, seeds=5, budget=2.5)) == {"seeds": 5, "budget_s": 2.5}
    assert corpus(config(tmp_path)) == tmp_path / ".explore"
    assert corpus(config(tmp_path, corpus="there")) == Path("there")


def test_the_header_says_nothing_to_who_explores_nothing(tmp_path: Path) -> None:
    assert pytest_report_header(config(tmp_path)) == []
    (tmp_path / ".explore" / "a").mkdir(parents=True)
    (tmp_path / ".explore" / "a" / "x.json").write_text("{}")
    (line,) = pytest_report_header(config(tmp_path, nodes=5))
    assert line.startswith("explore: nodes=5; 1 earlier failures in ")


def test_every_option_is_added_to_pytest() -> None:
    added: list[str] = []
    group = SimpleNamespace(addoption=lambda name, **_: added.append(name))
    pytest_plugin.pytest_addoption(SimpleNamespace(getgroup=lambda *_: group))  # type: ignore[arg-type]  # a parser's part
    assert set(added) == {f"--explore-{name}" for name in (*OPTIONS, "replay", "corpus")}


def test_the_fixture_is_a_fixture(request: pytest.FixtureRequest) -> None:
    assert "pytest_fixture" in repr(pytest_plugin.explore) or hasattr(pytest_plugin.explore, "_fixture_function")
