"""The broker's reference names what the code does: its own codes, its exit codes, the keys that the text speaks of."""

from __future__ import annotations

import re
from pathlib import Path

from broker.admin import Administration
from broker.idle_keys import FEATURES, IDLE, NOT_OFFERED
from broker.parts import configuration
from broker.query.colddata import ColdData
from remoting.codes import RequestCode
from remoting.daemon import process
from remoting.daemon.keys import names

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "broker.md").read_text(encoding="utf-8")
TEXT = PAGE.partition("\n## Keys\n")[0]


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_code_of_operators_and_replicas_is_on_the_page() -> None:
    rows = [line for line in section("What it answers besides clients").splitlines() if re.match(r"\| \d", line)]
    listed = {int(number) for row in rows for number in re.findall(r"\d+", row.split("|")[1])}
    tables = {RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
              RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE}
    others = {RequestCode.EXCHANGE_BROKER_HA_INFO, RequestCode.NOTIFY_BROKER_ROLE_CHANGED}
    operators = {*Administration.handlers(Administration.__new__(Administration)), *ColdData(print).handlers()}
    assert listed == operators | tables | others


def test_exit_codes() -> None:
    said = section("Exit codes")
    assert re.findall(r"\d", said) == [str(code) for code in (process.STOPPED, process.FAILED, process.USAGE)]


def test_no_key_that_is_refused_is_called_without_meaning() -> None:
    refused = PAGE.partition("<!-- generated: broker-refused-keys -->")[2].partition("<!-- end -->")[0]
    assert set(re.findall(r"`(\w+)`\s\(", refused)) == set(NOT_OFFERED)
    assert not NOT_OFFERED.keys() & FEATURES.keys()


def test_keys_that_the_text_speaks_of_exist() -> None:
    spoken = set(re.findall(r"`([a-z]+[A-Z]\w+)(?:=\w+)?`", TEXT))
    files = {"brokerIdentity", "brokerLives", "epochFileCheckpoint"}
    assert spoken - files <= set(names(configuration())) | set(IDLE)
