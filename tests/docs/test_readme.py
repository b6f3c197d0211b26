"""The README's programs, configurations and commands, run as they stand on this machine's ports."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from controller.admin.cli import main as mqadmin
from harness.fleet import FleetConfig, open_fleet
from harness.processes.ports import reserved
from tests.docs.test_tutorial import free_ports

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
HOSTS = ("10.0.0.1:9877", "10.0.0.2:9877", "10.0.0.3:9877")


def test_the_first_program_counts_across_restarts(tmp_path: Path) -> None:
    _, program = blocks("python")
    (tmp_path / "counter.py").write_text(program.replace(":7000", f":{free_ports(1)[0]}"))
    for expected in ("1", "2"):
        done = subprocess.run([sys.executable, "counter.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                              env={"PYTHONPATH": str(ROOT)}, check=True)
        assert done.stdout.strip() == expected


@pytest.mark.slow
def test_the_three_steps_to_a_cluster(tmp_path: Path) -> None:
    def run(*line: str) -> str:
        return subprocess.run([sys.executable, *line], cwd=tmp_path, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True).stdout

    steps = [command[1:] for command in commands("mqcluster")]
    assert [step[0] for step in steps] == ["up", "kill", "status", "down"]
    with reserved(*range(10, 13), *range(48, 102)) as port:
        (tmp_path / "orders.py").write_text(blocks("python")[0].replace("19876", str(port)))
        try:
            assert f"namesrvAddr = 127.0.0.1:{port}" in run("-m", "mqcluster.cli", *steps[0], "--port", str(port))
            assert re.search(r"stored at broker-[ab], queue \d, offset 0\nb'two beers'\n", run("orders.py"))
            run("-m", "mqcluster.cli", *steps[1])
            assert "down" in run("-m", "mqcluster.cli", *steps[2])
        finally:
            run("-m", "mqcluster.cli", *steps[3])


def test_every_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert named and named <= targets


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands(program: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(rf"^({program} .*)$", README, re.MULTILINE)]


@contextmanager
def controllers(here: Path, addresses: list[str]) -> Iterator[None]:
    """The README's command with the README's file, once for each member; all are up."""
    (command,) = commands("mqcontroller")
    text = blocks("properties")[0].replace("/var/lib/rocketmq", ".")
    for host, address in zip(HOSTS, addresses, strict=True):
        assert host in text
        text = text.replace(host, address)
    started = []
    try:
        for number in range(3):
            folder = here / f"n{number}"
            folder.mkdir()
            (folder / "controller.conf").write_text(text.replace("SelfId = n0", f"SelfId = n{number}"))
            started.append(subprocess.Popen(
                [sys.executable, "-c", "import sys; from controller.cli import main; sys.exit(main())", *command[1:]],
                cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)}))
        for process in started:
            assert process.stdout is not None
            assert "boot success" in process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_the_three_steps_to_a_controller_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with reserved() as one, reserved() as two, reserved() as three:
        addresses = [f"127.0.0.1:{port}" for port in (one, two, three)]
        with controllers(tmp_path, addresses):
            trio.run(brokers_join_and_an_operator_looks, addresses)
    said = capsys.readouterr().out
    assert "#ControllerGroup\tgroup1" in said
    assert re.search(r"#Peer:\tn2:127\.0\.0\.1:\d+", said)
    assert "#SyncStateSetNums\t3" in said


async def brokers_join_and_an_operator_looks(addresses: list[str]) -> None:
    """Brokers with the addresses of the README's ``controllerAddr``; then its commands."""
    given = dict(re.findall(r"(\w+) = (.*)", blocks("properties")[1]))
    assert given == {"enableControllerMode": "true", "controllerAddr": ";".join(HOSTS)}
    asked = commands("mqadmin")
    assert [command[1] for command in asked] == ["getControllerMetaData", "getSyncStateSet"]
    async with open_fleet(addresses, config=FleetConfig(groups=1, name="broker")) as fleet:
        with trio.fail_after(60):
            await fleet.start()
        for _, *words in asked:
            words = [word.replace(HOSTS[0], addresses[0]).replace("broker-a", "broker-0") for word in words]
            assert await trio.to_thread.run_sync(mqadmin, words) == 0
