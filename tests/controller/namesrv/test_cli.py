"""The command ``mqnamesrv``: what it takes, what it refuses in words, and that it runs as a process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from controller.files import MemoryFiles
from controller.keys import ConfigError
from controller.namesrv.cli import USAGE, configure, main, parser, tls_of
from controller.namesrv.config import WITHOUT_MEANING, NamesrvConfig, from_properties, to_properties
from tests.controller.namesrv.fleet import config

FILE = b"listenPort=1\nsupportActingMaster=true\nserverWorkerThreads=3\n"


def configured(*arguments: str, **files: bytes) -> NamesrvConfig:
    return configure(parser().parse_args(arguments), MemoryFiles(dict(files)))


def test_the_command_line_wins_over_the_file_and_the_file_over_defaults() -> None:
    found = configured("-c", "conf", "-D", "listenPort=2", "-D", "notifyMinBrokerIdChanged = true", conf=FILE)
    assert found == from_properties({
        "listenPort": "2", "supportActingMaster": "true", "serverWorkerThreads": "3", "configStorePath": "conf",
        "notifyMinBrokerIdChanged": "true"})
    assert found.wait_seconds_for_service == 45
    assert found.config_store_path == "conf", "changes go to the file that was given"


@pytest.mark.parametrize(("arguments", "words"), [
    (["-c", "absent"], ["absent", "no such file"]),
    (["-c", "conf", "-D", "listenPort"], ["KEY=VALUE"]),
    (["-D", "=1"], ["KEY=VALUE"]),
    (["-c", "broken"], ["broken", "line 1"]),
    (["-D", "listenPort=99999"], ["listenPort", "99999", "0 to 65535"]),
    (["-D", "listnPort=1"], ["listnPort", "listenPort is"]),
    (["-D", "tls.server.mode=maybe"], ["tls.server.mode", "permissive"]),
])
def test_what_cannot_be_is_refused_with_key_value_and_rule(arguments: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(*arguments, conf=FILE, broken=b"a=\\u1")
    assert all(word in str(refused.value) for word in words)


def test_printing_the_configuration_needs_nothing_to_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:
    file = tmp_path / "conf"
    file.write_bytes(FILE)
    assert main(["-c", str(file), "-p", "-D", "tls.server.keyPassword=hush"]) == 0
    printed = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert printed["listenPort"] == "1"
    assert printed["serverWorkerThreads"] == "3"
    assert printed["tls.server.keyPassword"] == "******"
    assert printed.keys() == to_properties(NamesrvConfig()).keys()


@pytest.mark.parametrize("key", [
    "enableControllerInNamesrv=true", "tls.server.mode=enforcing", "tls.server.certPath=/x",
])
def test_what_this_process_cannot_do_is_refused_before_it_starts(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-D", key]) == USAGE
    assert key.partition("=")[0].rpartition(".")[0] in capsys.readouterr().err


def test_certificates_that_cannot_be_read_are_named() -> None:
    with pytest.raises(ConfigError, match=r"absent\.pem"):
        tls_of(config(**{"tls.server.certPath": "absent.pem", "tls.server.keyPath": "absent.pem"}))
    assert tls_of(NamesrvConfig()) is None


def test_help_teaches_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    missing = [key for key in to_properties(NamesrvConfig()) if key not in WITHOUT_MEANING and f"{key} = " not in text]
    assert not missing


def test_it_runs_as_a_process_and_stops_in_order(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from controller.namesrv.cli import main; sys.exit(main())",
         "-D", "listenPort=0", "-D", "bindAddress=127.0.0.1", "-D", f"kvConfigPath={tmp_path}/kv", "--log-json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
        text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert line.startswith("The Name Server boot success. address 127.0.0.1:"), err
    assert out == ""
    assert process.returncode == 0
    assert '"message": "stopping", "signal": "SIGTERM"' in err


def test_a_port_in_use_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["-D", "bindAddress=127.0.0.1", "-D", f"listenPort={port}"]) == 1
    assert f"cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err
