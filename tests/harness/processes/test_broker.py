"""A broker's handle: where its files are, and the id in them."""

from __future__ import annotations

from pathlib import Path

from harness.processes.broker import Broker


def test_the_id_is_the_one_in_its_file(tmp_path: Path) -> None:
    broker = Broker("a broker", tmp_path, [], "127.0.0.1:1", "boot success")
    assert broker.broker_id() is None, "no controller gave it one yet"
    broker.store.mkdir()
    (broker.store / "brokerIdentity").write_text("cluster#broker-a#12")
    assert broker.broker_id() == 12
