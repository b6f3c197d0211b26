"""The command ``mqnamesrv``: what it takes, what it refuses in words, and that it runs as a process."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

import controller.config as controllers
from controller.namesrv.cli import configure, main, parser
from controller.namesrv.config import WITHOUT_MEANING, NamesrvConfig, from_properties, to_properties
from controller.server import RunningController, serve_controller
from raft.tls import ALPN
from remoting import properties
from remoting.client import checked, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.daemon.files import MemoryFiles
from remoting.daemon.keys import ConfigError
from remoting.daemon.process import USAGE, given_properties, raise_file_limit
from remoting.daemon.tls import tls_of

ROOT = Path(__file__).parents[3]
FILE = b"listenPort=1\nsupportActingMaster=true\nserverWorkerThreads=3\n"


def configured(*arguments: str, **files: bytes) -> NamesrvConfig:
    return configure(given_properties(parser().parse_args(arguments), MemoryFiles(dict(files)))).namesrv


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
    (["-D", "useTLS=true"], ["useTLS", "is not offered"]),
    (["-D", "bindAddress=0.0.0.0:9876"], ["bindAddress", "must be an IP address"]),
    (["-D", "tls.server.mode=maybe"], ["tls.server.mode", "permissive"]),
])
def test_what_cannot_be_is_refused_with_key_value_and_rule(arguments: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(*arguments, conf=FILE, broken=b"a=\\u1")
    assert all(word in str(refused.value) for word in words)


def test_keys_on_which_neither_of_two_servers_depends_are_idle() -> None:
    text = b"""enableControllerInNamesrv=true
controllerDLegerGroup=g
controllerDLegerPeers=n0-127.0.0.1:9877
controllerDLegerSelfId=n0
defaultThreadPoolNums=3
controllerThreadPoolNums=4
processReadEvent=true
"""
    arguments = parser().parse_args(["-c", "conf"])
    both = configure(given_properties(arguments, MemoryFiles({"conf": text})))
    assert both.idle == {"defaultThreadPoolNums": "3", "controllerThreadPoolNums": "4"}
    alone = configure(given_properties(arguments, MemoryFiles({"conf": text.replace(b"true", b"false", 1)})))
    assert alone.idle.keys() == both.idle.keys() | {
        "controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId", "processReadEvent"}


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
    "tls.server.mode=enforcing", "tls.server.certPath=/x", "useTLS=true",
])
def test_what_this_process_cannot_do_is_refused_before_it_starts(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-D", key]) == USAGE
    assert key.partition("=")[0].rpartition(".")[0] in capsys.readouterr().err
    assert main(["-D", "enableControllerInNamesrv=true"]) == USAGE
    assert "controllerDLegerGroup" in capsys.readouterr().err


EMBEDDED = {
    "enableControllerInNamesrv": "true", "listenPort": "9876", "controllerDLegerGroup": "g",
    "controllerDLegerPeers": "n0-127.0.0.1:9879", "controllerDLegerSelfId": "n0", "notifyBrokerRoleChanged": "false",
    "bindAddress": "127.0.0.1",
}


def test_one_file_configures_a_name_server_and_the_controller_in_it() -> None:
    both = configure(EMBEDDED)
    assert both.namesrv.listen_port == 9876
    assert both.controller is not None
    assert (both.controller.listen, both.controller.notify_broker_role_changed) == ("127.0.0.1:9879", False)
    assert configure({**EMBEDDED, "enableControllerInNamesrv": "false"}).controller is None
    with pytest.raises(ConfigError, match="controllerDLegerGroup"):
        configure({**EMBEDDED, "controllerDLegerGroup": ""})
    with pytest.raises(ConfigError, match="controllerDLegerGrup"):
        configure({**EMBEDDED, "controllerDLegerGrup": "g"})


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", shell])
    assert ended.value.code == 0
    script = capsys.readouterr().out
    assert "mqnamesrv" in script
    assert "--printConfigItem" in script


def test_help_teaches_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    missing = [key for key in to_properties(NamesrvConfig()) if key not in WITHOUT_MEANING and f"{key} = " not in text]
    assert not missing


@contextmanager
def held_port() -> Iterator[str]:
    """An address that is bound and not listened at: nobody else gets its port."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@contextmanager
def started(*settings: str, file: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """The command as a process; ended by force if need be."""
    arguments = [word for setting in settings for word in ("-D", setting)]
    if file is not None:
        arguments = ["-c", file, *arguments]
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; from controller.namesrv.cli import main; sys.exit(main())",
         "--log-json", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_it_runs_as_a_process_and_stops_in_order(tmp_path: Path) -> None:
    with started("listenPort=0", "bindAddress=127.0.0.1", f"kvConfigPath={tmp_path}/kv") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert line.startswith("The Name Server boot success. address 127.0.0.1:"), err
    assert out == ""
    assert process.returncode == 0, err
    assert '"message": "stopping", "signal": "SIGTERM"' in err


async def test_it_runs_a_controller_beside_and_hands_it_the_farewell(tmp_path: Path) -> None:
    with held_port() as address:
        settings = {
            **EMBEDDED, "listenPort": "0", "controllerDLegerPeers": f"n0-{address}", "kvConfigPath": f"{tmp_path}/kv",
            "controllerStorePath": f"{tmp_path}/store"}
        with started(*(f"{name}={value}" for name, value in settings.items())) as process:
            assert process.stdout is not None
            lines = [await trio.to_thread.run_sync(process.stdout.readline) for _ in range(2)]
            async with open_client() as client:
                found = checked(await client.call(address, request(RequestCode.CONTROLLER_GET_METADATA_INFO)))
                namesrv = lines[0].rpartition(" ")[2].strip()
                checked(await client.call(namesrv, request(RequestCode.GET_BROKER_CLUSTER_INFO)))
            process.send_signal(signal.SIGTERM)
            _, err = await trio.to_thread.run_sync(partial(process.communicate, timeout=30))
    assert lines[1] == f"The ControllerManager boot success. address {address}\n", err
    assert found.ext["group"] == "g"
    assert process.returncode == 0, err


async def test_what_each_changes_stands_in_the_one_file_at_the_next_start(tmp_path: Path) -> None:
    with held_port() as address:
        settings = {
            **EMBEDDED, "listenPort": "0", "controllerDLegerPeers": f"n0-{address}", "kvConfigPath": f"{tmp_path}/kv",
            "controllerStorePath": f"{tmp_path}/store", "supportActingMaster": "true", "processReadEvent": "true"}
        file = tmp_path / "conf"
        file.write_text(properties.encode(settings))
        with started(file=str(file)) as process:
            assert process.stdout is not None
            lines = [await trio.to_thread.run_sync(process.stdout.readline) for _ in range(2)]
            namesrv = lines[0].rpartition(" ")[2].strip()
            async with open_client() as client:
                for asked, code, change in (
                    (address, RequestCode.UPDATE_CONTROLLER_CONFIG, b"enableElectUncleanMaster=true"),
                    (namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true"),
                    (address, RequestCode.UPDATE_CONTROLLER_CONFIG, b"isProcessReadEvent=false\nelectPolicy=priority"),
                    (namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, b"bindAddress=0.0.0.0"),
                ):
                    checked(await client.call(asked, request(code, body=change)))
                refused = await client.call(
                    address, request(RequestCode.UPDATE_CONTROLLER_CONFIG, body=b"bindAddress=127.0.0.2"))
    assert refused.code == ResponseCode.NO_PERMISSION and "bindAddress" in (refused.remark or "")
    both = configure(properties.parse(file.read_text()))
    ours, embedded = both.namesrv, both.controller
    assert (ours.listen_port, ours.support_acting_master, ours.order_message_enable, ours.bind_address) == (
        0, True, True, "0.0.0.0")
    assert embedded is not None
    assert (embedded.address, embedded.notify_broker_role_changed) == (address, False)
    assert (embedded.enable_elect_unclean_master, embedded.elect_policy) == (True, "priority")
    assert not embedded.is_process_read_event


async def test_the_controller_in_it_meets_others_under_mutual_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    other = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    with held_port() as address:
        def settings(node: str) -> dict[str, str]:
            issued = authority.issue_cert(node, "127.0.0.1")
            issued.private_key_pem.write_to_path(str(tmp_path / f"{node}.key"))
            issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"{node}.pem"))
            return {
                "controllerDLegerGroup": "g", "controllerDLegerPeers": f"n0-{address};n1-{other}",
                "controllerDLegerSelfId": node, "controllerStorePath": f"{tmp_path}/{node}",
                "tls.server.certPath": f"{tmp_path}/{node}.pem", "tls.server.keyPath": f"{tmp_path}/{node}.key",
                "tls.server.trustCertPath": f"{tmp_path}/ca.pem", "segmentBytes": str(1 << 20)}

        beside = controllers.from_properties(settings("n1"))
        inside = {**EMBEDDED, "listenPort": "0", "kvConfigPath": f"{tmp_path}/kv", **settings("n0")}
        with started(*(f"{name}={value}" for name, value in inside.items())), trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                running: RunningController = await nursery.start(partial(
                    serve_controller, beside, files=MemoryFiles(), listeners=[listener],
                    tls=tls_of(beside, raft_alpn=ALPN)))
                while running.core.node.leader is None:  # which takes both
                    await trio.sleep(0.02)
                nursery.cancel_scope.cancel()


def test_a_port_in_use_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["-D", "bindAddress=127.0.0.1", "-D", f"listenPort={port}"]) == 1
    assert f"cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err


def test_as_many_connections_as_the_system_allows_not_as_few_as_the_shell_does() -> None:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before, 512), most))
    try:
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
