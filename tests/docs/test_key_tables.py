"""The page of all keys: which there are, by reflection on the released jars, and that each has its row."""

from __future__ import annotations

import logging
import re
import runpy
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import controller.config as controllers
from broker import config as brokers
from broker.idle_keys import IDLE
from broker.important import IMPORTANT
from broker.parts import configuration
from controller.config import KNOWN as CONTROLLER_KNOWN
from controller.namesrv import config as namesrvs
from controller.namesrv.cli import KNOWN as NAMESRV_KNOWN
from remoting.daemon.exporter import MetricsKeys
from remoting.daemon.keys import NETTY_FEATURES, ConfigError, names, unknown
from remoting.daemon.process import tell_of_idle_keys
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
    listed = re.findall(r"^\| `(\w+)` \| .* \| `.+` \| (.+) \| (.+) \|$", rows, re.MULTILINE)
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


def read_by(kind: str, given: dict[str, str]) -> tuple[dict[str, str], Mapping[str, str]]:
    """All keys of the server that these are of, with what was given; and what of that has no effect."""
    if kind in TABLES["BROKER"]:
        config: Any = brokers.from_properties(given, start=configuration()())
        return brokers.to_properties(config), config.without_meaning
    if kind == "NamesrvConfig":
        names_config = namesrvs.from_properties(given)
        return namesrvs.to_properties(names_config), names_config.kept
    control = controllers.from_properties(given)
    return controllers.to_properties(control), control.without_meaning


def outcome(kind: str, name: str, value: str, caplog: pytest.LogCaptureFixture) -> str:
    """What becomes of a file with this key alone, in the words that a row begins with."""
    config, _, missing = TABLES["server_of"](kind)
    known = names(config).keys() | (IDLE if kind in TABLES["BROKER"] else
                                    NAMESRV_KNOWN if kind == "NamesrvConfig" else CONTROLLER_KNOWN)
    strange = unknown({name: value}, known)
    try:
        now, idle = read_by(kind, {} if strange else {name: value})
    except ConfigError as refused:
        words = str(refused)
        return "refused, unless " if words.startswith(f"{name} = {value}: is not offered; must be ") else words
    caplog.clear()
    with caplog.at_level(logging.INFO):
        tell_of_idle_keys(idle, strange, missing or NETTY_FEATURES, MetricsKeys(), None)
    told = [record for record in caplog.records if vars(record).get("key") == name]
    listed = TABLES["OTHER_NAMES"].get(name, name)
    if listed in names(config):
        assert not told and now[listed] == value != read_by(kind, {})[0][listed]
        return "effective: "
    (record,) = told
    assert record.levelname == ("WARNING" if strange or name in missing else "INFO")
    return "none; unless " if name in missing else "none. "


@pytest.mark.parametrize("kind", RECORDED)
def test_each_row_says_what_becomes_of_the_value_that_was_tried(
    kind: str, caplog: pytest.LogCaptureFixture,
) -> None:
    rows = PAGE.partition(f"<!-- generated: java-{kind} -->")[2].partition("<!-- end -->")[0]
    listed = re.findall(r"^\| `(\w+)` \| .* \| `(.+)` \| (.+) \| .+ \|$", rows, re.MULTILINE)
    assert len(listed) == len(RECORDED[kind])
    wrong = {name: (value, said, here) for name, value, here in listed
             if not here.startswith(said := outcome(kind, name, value, caplog))}
    assert not wrong


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
