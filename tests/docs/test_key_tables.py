"""The page of all keys: which there are, by reflection on the released jars, and that each has its row."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest

from broker.idle_keys import IDLE
from broker.important import IMPORTANT
from controller.config import KNOWN as CONTROLLER_KNOWN
from controller.namesrv.cli import KNOWN as NAMESRV_KNOWN
from remoting.daemon.keys import names
from tests.harness.processes.rocketmq import current_release

DOCS = Path(__file__).parents[2] / "docs"
TABLES = runpy.run_path(str(DOCS / "key_tables.py"))
PAGE = (DOCS / "reference" / "keys.md").read_text(encoding="utf-8")
RECORDED = TABLES["recorded"]()


def test_all_keys_of_the_release_are_recorded() -> None:
    assert RECORDED.keys() == TABLES["JAVAS"].keys()
    assert len(set().union(*(RECORDED[kind] for kind in TABLES["BROKER"]))) == 518


@pytest.mark.parametrize("kind", RECORDED)
def test_each_has_a_row_that_says_what_it_does(kind: str) -> None:
    rows = PAGE.partition(f"<!-- generated: java-{kind} -->")[2].partition("<!-- end -->")[0]
    listed = re.findall(r"^\| `(\w+)` \| .* \| (.+) \| (.+) \|$", rows, re.MULTILINE)
    assert [name for name, _, _ in listed] == sorted(RECORDED[kind])
    for name, here, java in listed:
        assert here.startswith(("effective: ", "refused, unless ", "none")), name
        assert java.strip(), name


@pytest.mark.parametrize("kind", RECORDED)
def test_each_is_taken_by_its_server(kind: str) -> None:
    config, _, _ = TABLES["server_of"](kind)
    known = names(config).keys() | (IDLE if kind in TABLES["BROKER"] else
                                    NAMESRV_KNOWN if kind == "NamesrvConfig" else CONTROLLER_KNOWN)
    assert RECORDED[kind].keys() - known - TABLES["NEVER_IN_FILES"] == set()


def test_what_is_said_of_keys_is_of_keys() -> None:
    assert TABLES["meanings"]().keys() <= set().union(*RECORDED.values())


@pytest.mark.java
@pytest.mark.slow
def test_the_released_jars_have_these_keys(tmp_path: Path) -> None:
    release = current_release()
    subprocess.run(["javac", "-nowarn", "-proc:none", "-cp", f"{release.jars}/*", "-d", str(tmp_path),
                    str(Path(__file__).parent / "Keys.java")], check=True, timeout=120)
    ran = subprocess.run(
        [release.java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:ActiveProcessorCount=4", f"-Duser.home={tmp_path}",
         "-cp", f"{tmp_path}:{release.jars}/*", "Keys", *TABLES["JAVAS"].values()],
        check=True, capture_output=True, text=True, timeout=120)
    found: dict[str, dict[str, str]] = {}
    important = set()
    for line in ran.stdout.splitlines():
        kind, *row = line.split("\t")
        if len(row) == 3:  # the logger of the release prints, too
            found.setdefault(kind, {})[row[0]] = row[1]
            important |= {row[0]} if row[2] else set()
    assert found == RECORDED
    assert important == IMPORTANT
