"""The controller's configuration and its command: what is taken, what is refused in words, how the process ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.cli import main, parser
from controller.config import (
    QUICK,
    WITHOUT_MEANING,
    ControllerConfig,
    check,
    from_properties,
    listing,
    live_keys,
    to_properties,
)
from remoting.daemon.files import MemoryFiles
from remoting.daemon.keys import ConfigError, names, written
from remoting.daemon.process import FAILED, USAGE, given_properties

ROOT = Path(__file__).parents[2]
KEYS = names(ControllerConfig)
THREE = {
    "controllerDLegerGroup": "g", "controllerDLegerPeers": "n0-10.0.0.1:9877;n1-10.0.0.2:9877;n2-[::1]:9878",
    "controllerDLegerSelfId": "n2"}
JRAFT = {
    "controllerType": "jRaft", "jRaftGroupId": "jg", "jRaftServerId": "b:9880", "jRaftInitConf": "a:9880,b:9880,c:9880",
    "jRaftControllerRPCAddr": "a:9770,b:9771,c:9772", "jRaftElectionTimeoutMs": "2000"}


def configured(*arguments: str, **files: bytes) -> ControllerConfig:
    return from_properties(given_properties(parser().parse_args(arguments), MemoryFiles(dict(files))))


@pytest.mark.parametrize("name", KEYS)
def test_every_key_goes_in_and_comes_out(name: str) -> None:
    field = KEYS[name]
    meta = field.metadata
    if isinstance(field.default, bool):
        text = written(not field.default)
    elif isinstance(field.default, int):
        text = str(meta["most"])
    else:
        text = meta["choices"][-1] if meta["choices"] else "some text"
    config = from_properties({name: f"  {text} "})
    assert to_properties(config)[name] == text
    assert written(getattr(config, field.name)) == text
    assert from_properties(to_properties(config)).without_meaning.keys() == WITHOUT_MEANING.keys()


@pytest.mark.parametrize("name", KEYS)
def test_a_wrong_value_names_key_value_and_rule(name: str) -> None:
    field = KEYS[name]
    meta = field.metadata
    if isinstance(field.default, bool):
        wrong = {"": "true or false", "yes": "true or false", "1": "true or false"}
    elif isinstance(field.default, int):
        least, most = meta["least"], meta["most"]
        rule = f"a whole number from {least} to {most}"
        wrong = dict.fromkeys(("", "x", "1.5", "0x10", "1_0", "9" * 30, str(least - 1), str(most + 1)), rule)
    elif meta["choices"]:
        wrong = dict.fromkeys(("", "nonsense", meta["choices"][0] + " x"), f"one of {', '.join(meta['choices'])}")
    else:
        return  # any text; ``check`` looks at what it means
    for text, rule in wrong.items():
        with pytest.raises(ConfigError) as refused:
            from_properties({name: text})
        assert (refused.value.key, refused.value.value) == (name, text)
        assert rule in refused.value.rule and str(refused.value).startswith(f"{name} = {text[:20]}")


@pytest.mark.parametrize(("name", "near"), [
    ("controllerDLedgerPeers", "controllerDLegerPeers"), ("enableElectUncleanMasters", "enableElectUncleanMaster"),
    ("listenport", "listenPort"), ("zzz", None),
])
def test_an_unknown_key_is_told_with_the_near_one(name: str, near: str | None) -> None:
    with pytest.raises(ConfigError, match=f"^{name} = 1: is no known key") as refused:
        from_properties({name: "1"})
    assert (f"; {near} is" in str(refused.value)) == bool(near)


def test_a_profile_sets_its_keys_and_single_keys_win() -> None:
    quick = from_properties({**THREE, "detectionProfile": "quick"})
    check(quick)
    assert {name: to_properties(quick)[name] for name in QUICK} == QUICK
    chosen = from_properties({"detectionProfile": "quick", "brokerHeartbeatTimeoutMillis": "5000"})
    assert chosen.broker_heartbeat_timeout_ms == 5000
    assert from_properties({"detectionProfile": "default"}, start=quick) == from_properties(THREE)
    assert to_properties(from_properties(to_properties(chosen))) == to_properties(chosen)


def test_dledger_keys() -> None:
    config = from_properties(THREE)
    check(config)
    assert (config.group, config.self_id, config.address) == ("g", "n2", "[::1]:9878")
    assert config.peers == {"n0": "10.0.0.1:9877", "n1": "10.0.0.2:9877", "n2": "[::1]:9878"}
    assert config.listen == "0.0.0.0:9878"
    assert from_properties({**THREE, "listenPort": "1"}).listen == "0.0.0.0:1"
    assert config.store_path == "~/DLedgerController"


def test_jraft_keys_are_mapped() -> None:
    config = from_properties(JRAFT)
    check(config)
    assert (config.group, config.self_id, config.address) == ("jg", "n1", "b:9771")
    assert config.peers == {"n0": "a:9770", "n1": "b:9771", "n2": "c:9772"}
    assert config.raft().election_timeout_ms == 2_000
    assert config.store_path == "~/jRaftController"


@pytest.mark.parametrize(("change", "key", "rule"), [
    ({"controllerDLegerGroup": " "}, "controllerDLegerGroup", "name the controller group"),
    ({"controllerDLegerGroup": "é" * 128}, "controllerDLegerGroup", "255 bytes"),
    ({"controllerDLegerGroup": "\udcff"}, "controllerDLegerGroup", "255 bytes"),
    ({"bindAddress": ""}, "bindAddress", "an IP address"),
    ({"controllerDLegerPeers": ""}, "controllerDLegerPeers", "name all first members"),
    ({"controllerDLegerSelfId": "n9"}, "controllerDLegerSelfId", "one of the ids in controllerDLegerPeers: n0, n1, n2"),
    ({"controllerDLegerPeers": "n2-a:1;n2-b:1"}, "controllerDLegerPeers", "one id twice"),
    ({"controllerDLegerPeers": "n2-a:1;n1-a:1"}, "controllerDLegerPeers", "one address twice"),
    ({"controllerDLegerPeers": "n2-a:1;n1"}, "controllerDLegerPeers", "id-host:port"),
    ({"controllerDLegerPeers": "n2-a:1;n/1-b:1"}, "controllerDLegerPeers", "id-host:port"),
    ({"controllerDLegerPeers": "n2-a:1;n1-b:70000"}, "controllerDLegerPeers", "no address"),
    ({"controllerDLegerPeers": "n2-a:1,n1-b:1"}, "controllerDLegerPeers", "id-host:port"),
    ({"controllerDLegerPeers": "n2-::1:9877"}, "controllerDLegerPeers", "id-host:port"),
    ({"controllerDLegerPeers": "n2-a b:1"}, "controllerDLegerPeers", "id-host:port"),
    ({"preferredMasters": "c/b:1"}, "preferredMasters", "electPolicy=preferred"),
    ({"electPolicy": "preferred", "preferredMasters": "b:1"}, "preferredMasters", "cluster/group:id"),
    ({"electPolicy": "preferred", "preferredMasters": "c/b:0"}, "preferredMasters", "cluster/group:id"),
    ({**JRAFT, "jRaftGroupId": " "}, "jRaftGroupId", "name the controller group"),
    ({**JRAFT, "jRaftInitConf": "a:9880,b:9880,b:9880"}, "jRaftInitConf", "one member twice"),
    ({**JRAFT, "jRaftServerId": "z:1"}, "jRaftServerId", "one of jRaftInitConf, a:9880,b:9880,c:9880"),
    ({**JRAFT, "jRaftControllerRPCAddr": "a:1,b:1"}, "jRaftControllerRPCAddr", "as many addresses as jRaftInitConf"),
    ({**JRAFT, "jRaftControllerRPCAddr": "a:1,b:1,b:1"}, "jRaftControllerRPCAddr", "one address twice"),
    ({**JRAFT, "jRaftControllerRPCAddr": "a:1,b:1,c"}, "jRaftControllerRPCAddr", "no address"),
])
def test_what_the_keys_say_together(change: dict[str, str], key: str, rule: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check(from_properties({**THREE, **change}))
    assert refused.value.key == key
    assert rule in refused.value.rule


def test_preferred_masters() -> None:
    config = from_properties({**THREE, "electPolicy": "preferred", "preferredMasters": "c/a:1; c/b:2;"})
    check(config)
    assert config.preferred == {("c", "a"): 1, ("c", "b"): 2}


def test_keys_of_java_without_a_meaning_are_taken_listed_and_kept() -> None:
    given = dict.fromkeys(WITHOUT_MEANING, "7")
    config = from_properties({**THREE, **given})
    check(config)
    assert config.without_meaning == given
    assert {name: listing(config)[name] for name in given} == given
    changed = from_properties({"enableElectUncleanMaster": "true"}, start=config)
    assert changed.without_meaning == given and changed.enable_elect_unclean_master
    assert not WITHOUT_MEANING.keys() & KEYS.keys()


def test_a_file_with_keys_of_java_s_client_is_one_that_a_controller_takes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:
    file = tmp_path / "controller.conf"
    file.write_text("clientWorkerThreads=8\nconnectTimeoutMillis=1000\nuseTLS=false\ncontrolerThreadPoolNums=4\n")
    assert main(["-c", str(file), "-p"]) == 0
    printed = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert (printed["clientWorkerThreads"], printed["connectTimeoutMillis"]) == ("8", "1000")


def test_javas_other_name_of_a_setter() -> None:
    assert from_properties({"processReadEvent": "true"}).is_process_read_event
    assert from_properties({"isProcessReadEvent": "true"}).is_process_read_event


def test_live_keys_are_those_that_elections_and_notifications_read() -> None:
    assert live_keys() == {
        "enableElectUncleanMaster", "notifyBrokerRoleChanged", "isProcessReadEvent", "electPolicy", "preferredMasters",
        "waitMasterLease", "readmitWipedControllers"}


def test_the_password_is_shown_to_nobody() -> None:
    config = from_properties({"tls.server.keyPassword": "hush"})
    assert listing(config)["tls.server.keyPassword"] == "******"
    assert to_properties(config)["tls.server.keyPassword"] == "hush"
    assert listing(ControllerConfig())["tls.server.keyPassword"] == ""


def test_the_command_line_wins_over_the_file_and_the_file_over_defaults() -> None:
    file = b"controllerDLegerGroup = file\nelectionTimeoutMs=500\n# a comment\n"
    config = configured("-c", "conf", "-D", "controllerDLegerGroup=line", "-D", "bindAddress = 1.2.3.4", conf=file)
    assert (config.group, config.election_timeout_ms, config.bind_address) == ("line", 500, "1.2.3.4")
    assert config.config_store_path == "conf", "changes go to the file that was given"
    assert config.broker_heartbeat_timeout_ms == 10_000


def test_printing_needs_no_complete_configuration(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "controller.conf"
    file.write_text("controllerDLegerGroup=g\nserverWorkerThreads=3\n", encoding="utf-8")
    assert main(["-c", str(file), "-p", "-D", "electionTimeoutMs=600", "-D", "tls.server.keyPassword=hush"]) == 0
    printed = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert printed.keys() == {*KEYS, *WITHOUT_MEANING}
    assert printed["serverWorkerThreads"] == "3" and printed["electionTimeoutMs"] == "600"
    assert printed["tls.server.keyPassword"] == "******"


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "controllerDLegerGroup"), (["-c", "/absent"], "no such file"), (["-D", "x"], "KEY=VALUE"),
    (["-D", "useTLS=true"], "useTLS = true: is not offered"), (["-D", "electionTimeoutMs=1"], "electionTimeoutMs = 1"),
    (["-D", "controllerType=zookeeper"], "one of DLedger, jRaft"), (["-D", "tls.server.certPath=/x"], ""),
])
def test_a_wrong_configuration_is_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(arguments) == USAGE
    said = capsys.readouterr().err
    assert said.startswith("mqcontroller: ") and words in said and "Traceback" not in said


@pytest.mark.parametrize(("content", "words"), [(None, "is a folder; name a file"), (b"a=\xff", "byte 2 is wrong")])
def test_a_file_that_is_none_or_no_text_is_told(
    content: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "controller.conf"
    file.mkdir() if content is None else file.write_bytes(content)
    assert main(["-c", str(file)]) == USAGE
    said = capsys.readouterr().err
    assert said.startswith(f"mqcontroller: -c = {file}: is") and words in said and "Errno" not in said


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", shell])
    script = capsys.readouterr().out
    assert ended.value.code == 0
    assert "mqcontroller" in script and "--printConfigItem" in script and "--log-json" in script


# --- the process ---------------------------------------------------------------------------------------------


@contextmanager
def port_held() -> Iterator[int]:
    """Bound and not listening: nobody else gets it, and who asks for it as we do may listen."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def alone(port: int, store: Path, **more: str) -> list[str]:
    keys = {"controllerDLegerGroup": "g", "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
            "controllerDLegerSelfId": "n0", "controllerStorePath": str(store), "bindAddress": "127.0.0.1", **more}
    return [word for key, value in keys.items() for word in ("-D", f"{key}={value}")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_process_in_order(number: signal.Signals, tmp_path: Path) -> None:
    run = "import sys; from controller.cli import main; sys.exit(main())"
    with port_held() as port, subprocess.Popen(
        [sys.executable, "-c", run, "--log-json", *alone(port, tmp_path / "store", serverWorkerThreads="9")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert line == f"The Controller boot success. address 127.0.0.1:{port}\n", err
    assert (process.returncode, out) == (0, ""), err
    assert '"key": "serverWorkerThreads", "value": "9"' in err
    assert f'"signal": "{number.name}"' in err


def test_a_port_in_use_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(alone(port, tmp_path)) == FAILED
    assert f"mqcontroller: cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err


def test_a_directory_of_another_group_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for group in ("g", "h"):
        with port_held() as port:
            assert main([*alone(port, tmp_path / "store", controllerDLegerGroup=group, metricsExporterType="PROM",
                                metricsPromExporterPort="0", metricsPromExporterHost="no such host.invalid")]) == FAILED
    said = capsys.readouterr().err.splitlines()
    assert any("belongs to" in line or "cluster" in line for line in said if line.startswith("mqcontroller:")), said
