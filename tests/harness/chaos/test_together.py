"""Runs of several groups at once: each is harmed and judged for itself, all share machine, network, time and page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.chaos.asked import TogetherRequest, asked, asked_for
from harness.chaos.subcommand import Refused
from tests.harness.chaos.test_run import HOSTS, KILLS, PLAIN, ROOT, chaos, left

STORE = ROOT / "harness" / "targets" / "library" / "store.toml"
BOTH = """
about = "Two stores side by side, one of which answers before it writes."
seconds = 3.5
seed = 1
[together]
right = "kill-store"
lazy = "lazy.toml"
"""


def both(folder: Path) -> str:
    (folder / "lazy.toml").write_text(f"{KILLS.read_text()}\n[options]\nflag = \"--lazy\"\n")
    (folder / "both.toml").write_text(BOTH)
    return str(folder / "both.toml")


def test_each_group_has_a_schedule_of_its_own(tmp_path: Path) -> None:
    found = asked_for(both(tmp_path))
    assert isinstance(found, TogetherRequest) and [*found.groups] == ["right", "lazy"]
    drawn = found.drawn(7)
    assert drawn == found.drawn(7) and drawn["right"].steps != drawn["lazy"].steps
    assert (drawn["right"].seed, drawn["lazy"].seed) == (7, 8)
    assert {each.seconds for each in drawn.values()} == {3.5}
    assert {each.seconds for each in found.lasting(9).drawn(7).values()} == {9}


@pytest.mark.parametrize(("text", "words"), [
    (BOTH + "third = 3", "a text is wanted"), (BOTH + "Third = 'lazy.toml'", "small letters"),
    (BOTH + "third = 'nothing'", "no scenario is called"), (BOTH + "third = 'both.toml'", "is made of groups"),
    (BOTH.partition("right")[0], "is empty")])
def test_what_is_wrong_is_said(tmp_path: Path, text: str, words: str) -> None:
    both(tmp_path)
    (tmp_path / "both.toml").write_text(text)
    with pytest.raises(Refused, match=words):
        asked_for(str(tmp_path / "both.toml"))


def test_a_schedule_of_too_many_faults_is_refused_with_its_scenario(tmp_path: Path) -> None:
    found = asked_for(both(tmp_path))
    assert isinstance(found, TogetherRequest)
    with pytest.raises(Refused, match=r"kill-store: more than [0-9,]+ faults"):
        found.lasting(1e7).drawn(7)


def test_the_nodes_of_all_groups_are_counted_together(tmp_path: Path) -> None:
    """Each of the two has less than the most, and both have more."""
    (tmp_path / "many.toml").write_text(STORE.read_text().replace("[nodes.store]", "[nodes.store]\ncount = 60", 1))
    (tmp_path / "large.toml").write_text(KILLS.read_text().replace('target = "store"', 'target = "many.toml"', 1))
    (tmp_path / "both.toml").write_text(BOTH.replace("kill-store", "large.toml").replace("lazy.toml", "large.toml"))
    with pytest.raises(Refused, match="120 nodes in all groups; at most 100"):
        asked_for(str(tmp_path / "both.toml"))


def test_what_is_no_scenario_is_refused_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "lazy.toml").write_text("about = 3")
    with pytest.raises(Refused, match=r"lazy\.toml: "):
        asked(str(tmp_path / "lazy.toml"))
    with pytest.raises(Refused, match=r"^both: "):
        TogetherRequest.of(BOTH.partition("right")[0], "both", {})


def test_a_target_is_that_of_one_group(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="both has groups: --target and --option"):
        asked_for(both(tmp_path), None, {"flag": "--lazy"})


@pytest.mark.slow
@pytest.mark.parametrize("where", [HOSTS, PLAIN])
def test_each_group_is_judged_for_itself(tmp_path: Path, where: list[str]) -> None:
    told = chaos(tmp_path, "run", both(tmp_path), "--out", "run", "--json", *where)
    assert told.returncode == 1, told.stdout + told.stderr
    run = tmp_path / "run"
    checkers = json.loads(told.stdout)["checkers"]
    assert {name: each["valid"] for name, each in checkers.items() if "recovery" not in name} == {
        "right: linearizable register": True, "right: nodes": True, "lazy: linearizable register": False,
        "lazy: nodes": True}
    assert checkers["right: nodes"]["asked"]["kill"] >= 1 and checkers["lazy: nodes"]["asked"]["kill"] >= 1
    about = json.loads((run / "run.json").read_text())
    assert about["sandbox"] == ("none" if where else json.loads(
        (run / "groups" / "lazy" / "run.json").read_text())["sandbox"]) and about["cannot"] is not None
    assert about["kinds"]["kill"] == about["faults"] >= 2 and about["well"] and [*about["of"]] == ["right", "lazy"]
    found = re.search(r'id="data">(.*?)</script>', (run / "page.html").read_text(), re.DOTALL)
    assert found is not None
    page = json.loads(found[1])
    assert page["groups"] == ["right", "lazy"] and {each.split()[0] for each in page["lanes"]} == {"right", "lazy"}
    assert {tuple(each["on"]) for each in page["faults"]} == {("right store-1",), ("lazy store-1",)}
    assert not left(run) and not left(run / "groups" / "right")
    whole = chaos(tmp_path, "check", "run")
    assert whole.returncode == 2 and "is a run of groups: name one of run/groups" in whole.stderr
    assert chaos(tmp_path, "check", "run/groups/right").returncode == 0
    assert chaos(tmp_path, "check", "run/groups/lazy").returncode == 1
    again = chaos(tmp_path, "replay", "run", "--out", "again", *where)
    assert again.returncode == 1, again.stdout + again.stderr
    schedules = [tmp_path / each / "groups" / "lazy" / "schedule.json" for each in ("run", "again")]
    assert schedules[0].read_text() == schedules[1].read_text()
    over = chaos(tmp_path, "run", "kill-store", "--out", "run", *where)
    assert over.returncode == 2 and "has a run: give this one another --out" in over.stderr, "not its groups again"
    alone = chaos(tmp_path, "replay", "run/groups/right", "--out", "alone", *where)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    removed = chaos(tmp_path, "clean", "run", "--remove")
    assert removed.returncode == 0 and not run.exists()


@pytest.mark.slow
def test_a_group_that_does_not_start_ends_the_run(tmp_path: Path) -> None:
    path = both(tmp_path)
    (tmp_path / "lazy.toml").write_text(f"{KILLS.read_text()}\n[options]\nflag = \"--nonsense\"\n")
    told = chaos(tmp_path, "run", path, "--out", "run")
    assert told.returncode == 2 and "store-1 ended with exit code 2 before it was up" in told.stderr, told.stderr
    assert "Traceback" not in told.stderr and not left(tmp_path / "run" / "groups" / "right")
