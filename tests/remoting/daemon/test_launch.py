"""Servers as operators launch them: by a shell, by systemd, with log files; and how they are stopped."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import cli as broker_cli
from broker.important import IMPORTANT
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.ports import reserved
from remoting.daemon import notify, process, shutdown
from remoting.daemon.child import child

ROOT = Path(__file__).parents[3]
HOST = "127.0.0.1"
_CREDENTIALS = struct.Struct("3i")


# --- by a shell ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [
    "mqnamesrv", "mqcontroller", "mqbroker", "mqbrokercontainer", "mqadmin", "mqshutdown"])
@pytest.mark.parametrize("shell", [[], ["sh"]], ids=["itself", "sh"])
def test_a_shell_may_read_it(tmp_path: Path, name: str, shell: list[str]) -> None:
    """As pip installs it: with this Python's path in the first line."""
    text = (ROOT / "launchers" / name).read_text()
    assert text.startswith("#!python\n")
    installed = tmp_path / name
    installed.write_text(text.replace("#!python", f"#!{sys.executable}", 1))
    installed.chmod(0o755)
    ran = subprocess.run([*shell, f"./{name}", "--version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"{name} ")


# --- by a fork -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("run", "code", "said"), [
    ("None", 0, ""), ("3", 3, ""), ("sys.exit()", 0, ""), ("sys.exit(3)", 3, ""), ("sys.exit('words')", 1, ""),
    ("1 // 0", 1, "ZeroDivisionError"), ("print('out')", 0, "out")])
def test_a_fork_ends_as_a_program_does(run: str, code: int, said: str) -> None:
    program = f"import sys; from remoting.daemon.child import live; live(lambda: {run}); print('behind it')"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == code and said in ran.stdout + ran.stderr and "behind" not in ran.stdout


# --- by systemd ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def listening(folder: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """systemd's end, and the environment of a service."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(str(folder / "notify"))
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ours.settimeout(60)
        yield ours, {**os.environ, notify.SOCKET: str(folder / "notify"), "HOME": str(folder)}


def told(ours: socket.socket) -> tuple[str, int]:
    """What was said, and by which process."""
    said, ancillary, _, _ = ours.recvmsg(100, socket.CMSG_SPACE(_CREDENTIALS.size))
    return said.decode(), _CREDENTIALS.unpack(ancillary[0][2])[0]


def kinds(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Of each server: kind, module, configuration."""
    with reserved() as port, reserved() as raft, reserved(FAST_PORT, HA_PORT) as listen:
        yield "namesrv", "controller.namesrv.cli", f"listenPort={port}\nkvConfigPath={folder}/kv.json\n"
        yield "controller", "controller.cli", (
            f"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-{HOST}:{raft}\ncontrollerDLegerSelfId=n0\n"
            f"controllerStorePath={folder}/raft\n")
        yield "broker", "broker.cli", (
            f"listenPort={listen}\nhaListenPort={listen + HA_PORT}\nstorePathRootDir={folder}/store\nbrokerIP1={HOST}\n"
            f"enableControllerMode=true\ncontrollerAddr={HOST}:{raft}\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3), ids=["namesrv", "controller", "broker"])
def test_it_says_when_it_serves_and_is_stopped_by_its_file(
    tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str],
) -> None:
    """The broker is under its guardian, and it is the guardian that systemd and ``mqshutdown`` speak to."""
    with listening(tmp_path) as (ours, environment):
        kind, module, text = list(kinds(tmp_path))[number]
        file = tmp_path / "given.conf"
        file.write_text(f"bindAddress={HOST}\n{text}")
        with subprocess.Popen(
                [*child(module), "-c", str(file), "--log-dir", str(tmp_path / "logs")], env=environment,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as server:
            try:
                assert told(ours) == ("READY=1", server.pid)
                assert shutdown.main([kind, "-c", str(file)]) == process.STOPPED
                assert capsys.readouterr().out == (
                    f"The mq{kind}({server.pid}) is running...\nSend shutdown request to mq{kind}({server.pid}) OK\n")
                assert told(ours) == ("STOPPING=1", server.pid)
                out, errors = server.communicate(timeout=60)
            finally:
                server.kill()
    assert (server.returncode, errors) == (0, "")
    assert "boot success" in out
    assert "boot success" in (tmp_path / "logs" / f"{kind}.log").read_text()
    assert (tmp_path / "logs" / "guardian.log").exists() == (kind == "broker")


def test_nobody_is_told_where_nobody_asked(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv(notify.SOCKET, raising=False)
    notify.notify(notify.READY)
    monkeypatch.setenv(notify.SOCKET, "@nobody-listens-here")
    notify.notify(notify.READY)
    assert [record.message for record in caplog.records] == ["systemd was not told"]


# --- stopped ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "given"), [
    (["/opt/bin/mqbroker", "-c", "x"], ["-c", "x"]),
    (["/usr/bin/python3", "-P", "/opt/bin/mqbroker", "-n", "h:1"], ["-n", "h:1"]),
    (["python", "-m", "broker.cli", "-p"], ["-p"]),
    ([*child("broker.cli"), "-D", "a=b"], ["-D", "a=b"]),
    ([*child("controller.cli")], None), (["python", "-m", "broker.other"], None), (["vi", "mqbroker"], None),
    (["python"], None), (["python", "-c"], None), ([], None), (["/opt/bin/mqbrokers"], None)])
def test_whose_command_line_it_is(line: list[str], given: list[str] | None) -> None:
    assert shutdown.arguments_of(line, "broker") == given


def test_a_container_is_none_of_its_brokers() -> None:
    for line in (["/opt/bin/mqbrokercontainer", "-c", "x"], [*child("broker.container.cli"), "-c", "x"]):
        assert shutdown.arguments_of(line, "brokerContainer") == ["-c", "x"]
        assert shutdown.arguments_of(line, "broker") is None
    assert shutdown.arguments_of([*child("broker.container.nest"), "7"], "broker") is None, "the container stops them"


def test_children_are_left_to_their_parents() -> None:
    family = [shutdown.Running(5, 1, ""), shutdown.Running(6, 5, ""), shutdown.Running(9, 8, "")]
    assert [each.pid for each in shutdown.first_of_each(family)] == [5, 9]


def test_a_process_that_is_another_by_now_is_left_alone() -> None:
    assert not shutdown.stop(shutdown.Running(os.getpid(), os.getppid(), ""), "broker")


def test_what_there_is_not_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert shutdown.main(["proxy"]) == process.FAILED
    assert "there is no proxy here" in capsys.readouterr().err


def test_none_is_running(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert shutdown.main(["namesrv", "-c", str(tmp_path / "nobody's")]) == process.FAILED
    assert capsys.readouterr().out == "No mqnamesrv running.\n"
    monkeypatch.setattr(shutdown, "PROC", tmp_path)
    assert shutdown.main(["namesrv"]) == process.FAILED
    assert "send SIGTERM to the process yourself" in capsys.readouterr().err


# --- what it prints and logs -----------------------------------------------------------------------------------------


def test_what_matters_most(capsys: pytest.CaptureFixture[str]) -> None:
    assert broker_cli.main(["-m", "-D", "listenPort=20911"]) == process.STOPPED
    shown = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert shown.keys() == IMPORTANT
    assert shown["listenPort"] == "20911"


@pytest.mark.parametrize("module", ["broker.cli", "controller.cli", "controller.namesrv.cli"])
def test_a_log_that_cannot_be_written_is_said(tmp_path: Path, module: str) -> None:
    (tmp_path / "file").write_text("")
    keys = ["controllerDLegerPeers=n0-127.0.0.1:1", "controllerDLegerGroup=g", "controllerDLegerSelfId=n0"]
    given = [part for key in keys if module == "controller.cli" for part in ("-D", key)]
    ran = subprocess.run([*child(module), *given, "--log-dir", str(tmp_path / "file")], capture_output=True, text=True,
                         check=False, timeout=60)
    assert ran.returncode == process.USAGE
    assert "cannot log to" in ran.stderr
    assert "choose another --log-dir" in ran.stderr
    assert "Traceback" not in ran.stderr
