"""The command ``mqbroker``: flags, files, what is printed and told, and how it ends. Nothing is served here."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import cli
from broker.config import from_properties
from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochList
from broker.store.directory import DirectoryFiles
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.ports import reserved
from remoting.daemon.process import FAILED, STOPPED, USAGE


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())


def test_flags_win_over_the_file_and_the_file_over_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\nbrokerIP1=10.0.0.1\nlistenPort=20911\nnamesrvAddr=old:1\n")
    assert cli.main(["-c", str(file), "-n", "new:1", "-D", "listenPort=30911", "-p"]) == STOPPED
    shown = printed(capsys)
    assert (shown["brokerName"], shown["namesrvAddr"], shown["listenPort"]) == ("a", "new:1", "30911")
    assert (shown["haListenPort"], shown["configStorePath"]) == ("30912", str(file))


def test_what_is_not_configured_is_this_machine_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-p"]) == STOPPED
    shown = printed(capsys)
    assert shown["brokerName"] == socket.gethostname()
    assert shown["brokerIP1"] == shown["brokerIP2"]
    ipaddress.ip_address(shown["brokerIP1"])
    assert not shown["storePathRootDir"].startswith("~")


def test_the_guardian_knows_the_last_epoch_of_its_broker_or_none(tmp_path: Path) -> None:
    config = from_properties({"storePathRootDir": str(tmp_path)})
    assert cli.last_epoch(config) is None
    (tmp_path / "epochFileCheckpoint").write_text("2\naa")
    assert cli.last_epoch(config) is None, "it cannot be read"
    EpochFile(DirectoryFiles(tmp_path)).write(EpochList([(3, 0), (7, 400)]))
    assert cli.last_epoch(config) == 7
    (tmp_path / "epochFileCheckpoint").write_text("damaged")
    assert cli.last_epoch(config) is None, "its backup may be older"


def test_a_port_that_the_system_chooses_is_told_to_others() -> None:
    assert cli.here(from_properties({"brokerIP1": "10.0.0.1", "brokerIP2": "10.1.0.1"})).ha_address == "10.1.0.1:10912"


@pytest.mark.parametrize(("arguments", "said"), [
    (["-D", "storeType=defaultRocksDB"], "storeType = defaultRocksDB: is not offered; must be default"),
    (["-D", "useTLS=true"], "useTLS = true: is not offered; must be false: tls.enable is for TLS to others"),
    (["-D", "messageStorePlugIn=org.x.TieredMessageStore"], "is not offered; must be empty"),
    (["-D", "brokerRole=SLAVE"], "brokerId = 0: does not go with brokerRole = SLAVE"),
    (["-c", "/nowhere/broker.conf"], "/nowhere/broker.conf: there is no such file"),
    (["-D", "tls.server.mode=enforcing"], "tls.server.mode = enforcing: needs tls.server.certPath"),
    (["-D", "enableControllerMode=true"], "controllerAddr = : must name the controllers"),
])
def test_wrong_usage_says_what_to_change(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(arguments) == USAGE
    assert said in capsys.readouterr().err


@pytest.fixture
def port() -> Iterator[int]:
    """A port whose neighbours, those of the VIP channel and of slaves, are free too."""
    with reserved(FAST_PORT, HA_PORT) as found:
        yield found


def test_a_port_in_use_and_a_store_in_use_are_told(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", port)):
        assert cli.main(["-D", "brokerIP1=127.0.0.1", "-D", "bindAddress=127.0.0.1", "-D", f"listenPort={port}",
                         "-D", "haListenPort=0", "-D", f"storePathRootDir={tmp_path}"]) == FAILED
    assert f"cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err


def test_a_table_that_cannot_be_read_stops_the_start(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text("{ no json")
    assert cli.main(["-D", "brokerIP1=127.0.0.1", "-D", "bindAddress=127.0.0.1", "-D", f"listenPort={port}",
                     "-D", "haListenPort=0", "-D", f"storePathRootDir={tmp_path}"]) == FAILED
    assert "config/topics.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "told"), [
    ([], True), (["-D", "cleanFileForciblyEnable=false"], False), (["-D", "diskSpaceCleanForciblyRatio=85"], False),
])
def test_what_a_full_disk_does_is_told_unless_it_was_chosen(
    given: list[str], told: bool, port: int, tmp_path: Path, capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text("{ no json")
    cli.main(["-D", "brokerIP1=127.0.0.1", "-D", "bindAddress=127.0.0.1", "-D", f"listenPort={port}",
              "-D", "haListenPort=0", "-D", f"storePathRootDir={tmp_path}", *given])
    assert ("a full disk refuses sends" in capfd.readouterr().err) is told


def test_another_group_s_identity_stops_the_start(
    port: int, tmp_path: Path, capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "brokerIdentity").write_text("DefaultCluster#other#3")
    assert cli.main(["-D", "brokerIP1=127.0.0.1", "-D", "bindAddress=127.0.0.1", "-D", f"listenPort={port}",
                     "-D", "haListenPort=0", "-D", f"storePathRootDir={tmp_path}", "-D", "brokerName=a",
                     "-D", "enableControllerMode=true", "-D", "controllerAddr=127.0.0.1:1"]) == FAILED
    assert "belongs to broker 'other'" in capfd.readouterr().err, "said by the guardian's child"


def test_metrics_without_their_packages_are_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    store = tmp_path / "store"
    for way, extra in (("PROM", "metrics"), ("LOG", "metrics"), ("OTLP_GRPC", "otlp")):
        assert cli.main(["-D", "brokerIP1=127.0.0.1", "-D", f"storePathRootDir={store}",
                         "-D", f"metricsExporterType={way}", "-D", "metricsGrpcExporterTarget=http://h:1"]) == USAGE
        said = capsys.readouterr().err
        assert f"metricsExporterType = {way}: needs prometheus_client" in said
        assert f"pip install 'quorate[{extra}]'" in said
    assert not store.exists()
