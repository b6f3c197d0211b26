"""The files that the guide to brokers shows are taken, and mean what it says."""

from __future__ import annotations

import re
from pathlib import Path

from broker.config import BrokerConfig, check, from_properties
from remoting.daemon.keys import names

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "run-brokers.md").read_text()
FILES = [dict(line.split(" = ", 1) for line in text.splitlines() if not line.startswith("#"))
         for text in re.findall(r"^```properties\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]


def test_every_file_is_one_that_a_broker_takes() -> None:
    assert len(FILES) == 5
    for given in FILES:
        assert set(given) <= set(names(BrokerConfig))
        check(from_properties({"brokerName": "broker-a", "brokerIP1": "10.0.1.1", "haMasterAddress": "10.0.1.1:10912",
                               **given}))


def test_retention_by_size_is_what_the_file_says() -> None:
    config = from_properties(next(given for given in FILES if "cleanFileForciblyEnable" in given))
    assert (config.disk_max_used_space_ratio, config.disk_space_clean_forcibly_ratio,
            config.disk_space_warning_level_ratio) == (70, 80, 90)
    assert config.clean_file_forcibly_enable
