"""``chaos run`` as a user has it: a service of a few lines, with its bug and without, in namespaces and on loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from harness.chaos.asked import RunRequest, asked_for
from harness.nemesis import sandbox
from harness.torture.directory import RunDirectory
from raft.command import INTERRUPTED
from tests.harness.nemesis import sandboxed

ROOT = Path(__file__).parents[3]
TARGET = ROOT / "harness" / "targets" / "library" / "store.toml"
KILLS = ROOT / "harness" / "scenarios" / "library" / "kill-store.toml"
CHAOS = [sys.executable, "-P", "-m", "harness.chaos"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
PLAIN = pytest.param(["--no-sandbox"], id="loopback")
HOSTS = pytest.param([], id="namespaces", marks=pytest.mark.skipif(
    bool(sandbox.impossible()), reason=f"not run: {sandbox.impossible()}"))


def chaos(folder: Path, *options: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CHAOS, *options], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=timeout_s, check=False)


def left(run: Path) -> list[int]:
    """Processes that have the run in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"QUORATE_RUN={run}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("where", [HOSTS, PLAIN])
def test_a_store_is_right_or_its_bug_is_found(tmp_path: Path, where: list[str]) -> None:
    right = chaos(tmp_path, "run", "kill-store", "--seed", "1", "--seconds", "3.5", "--json", *where)
    assert right.returncode == 0, right.stdout + right.stderr
    run = tmp_path / "chaos-runs" / "kill-store-1"
    assert json.loads(right.stdout)["run"] == str(run)
    told = json.loads((run / "run.json").read_text())
    assert told["seed"] == 1 and told["faults"] >= 1 and told["well"] and not told["died"]
    assert (told["sandbox"] == "none") is bool(where)
    assert "kill -9 store-1" in (run / "nemesis.jsonl").read_text()
    assert "<html" in (run / "page.html").read_text()
    assert not left(run)
    lazy = chaos(tmp_path, "run", "kill-store", "--seed", "1", "--seconds", "3.5", "--option",
                 "flag=--lazy", *where)
    assert lazy.returncode == 1, lazy.stdout + lazy.stderr
    assert "BROKEN" in lazy.stdout and "chaos replay" in lazy.stdout
    again = chaos(tmp_path, "replay", str(tmp_path / "chaos-runs" / "kill-store-2"), *where)
    assert again.returncode == 1, again.stdout + again.stderr
    runs = [tmp_path / "chaos-runs" / f"kill-store-{number}" for number in (2, 3)]
    schedules = [(each / "schedule.json").read_text() for each in runs]
    assert schedules[0] == schedules[1]


@pytest.mark.slow
@pytest.mark.parametrize("where", [HOSTS, PLAIN])
@pytest.mark.parametrize(("how", "code"), [
    (signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, INTERRUPTED)])
def test_nothing_is_left_of_a_run_that_was_ended(tmp_path: Path, where: list[str], how: int, code: int) -> None:
    run = subprocess.Popen([*CHAOS, "run", "kill-store", "--out", "here", *where], cwd=tmp_path, text=True,
                           env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    path = tmp_path / "here"
    try:
        wait_until(lambda: len(left(path)) >= 2 and (path / "history.jsonl").exists())
    finally:
        if how == signal.SIGINT:
            os.killpg(run.pid, how)  # as a terminal does
        else:
            run.send_signal(how)
        said, _ = run.communicate(timeout=60)
    assert run.returncode in (code, -how) and "Traceback" not in said, said
    wait_until(lambda: not left(path))
    cleaned = chaos(tmp_path, "clean", "here", "--remove")
    assert cleaned.returncode == 0 and f"removed {path}" in cleaned.stdout and not path.exists()


DEAF = """
import subprocess, sys, threading
subprocess.run([sys.executable, *sys.argv[1:]])
threading.Event().wait()
"""
"""It lives on when its input, and the client that it started, have ended."""


AS_USER = [sys.executable, "-P", "-c", "import os, sys; os.geteuid = lambda: 65534; "
           "from harness.chaos.cli import main; sys.exit(main())"]
"""It takes itself for a user who is not root, and makes a user namespace."""


@pytest.mark.slow
@pytest.mark.parametrize(("command", "where", "sandbox_"), [
    pytest.param(CHAOS, ["--no-sandbox"], "none", id="loopback"),
    pytest.param(AS_USER, [], "user", id="user namespace", marks=HOSTS.marks)])
def test_a_client_that_does_not_end_is_ended(
    tmp_path: Path, command: list[str], where: list[str], sandbox_: str,
) -> None:
    """Of a run that is killed with -9 itself."""
    copied(tmp_path, '"{here}/store/client.py"', '"{here}/deaf.py", "{here}/store/client.py"')
    (tmp_path / "deaf.py").write_text(DEAF)
    run = tmp_path / "here"
    with subprocess.Popen([*command, "run", "kills.toml", "--out", "here", *where], cwd=tmp_path, env=ENVIRONMENT,
                          stderr=subprocess.DEVNULL) as harness:
        wait_until(lambda: len(left(run)) >= 3 and (run / "run.json").exists())
        assert json.loads((run / "run.json").read_text())["sandbox"] == sandbox_
        harness.kill()
    wait_until(lambda: not left(run), 20)


@pytest.mark.slow
def test_what_builds_a_target_ends_with_its_run(tmp_path: Path) -> None:
    copied(tmp_path, "[client]", '[build]\ncommand = ["sleep", "300"]\n[client]')
    with subprocess.Popen([*CHAOS, "run", "kills.toml", "--out", "here"], cwd=tmp_path, env=ENVIRONMENT) as run:
        wait_until(lambda: len(left(tmp_path / "here")) == 1)
        run.kill()
    wait_until(lambda: not left(tmp_path / "here"))


@pytest.mark.slow
def test_many_runs_are_told_line_by_line(tmp_path: Path) -> None:
    """A kill is held when the time is over: what comes behind it shows that the store is back."""
    done = chaos(tmp_path, "run", "kill-store", "--seed", "6", "--runs", "2", "--seconds", "1.2", "--out", "all",
                 "--json", "--no-sandbox")
    *runs, whole = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0, done.stdout
    assert [(each["seed"], each["run"], each["valid"]) for each in runs] == [
        (seed, str(tmp_path / "all" / str(seed)), True) for seed in (6, 7)]
    assert whole == {"runs": 2, "broken": [], "unknown": []}
    over = chaos(tmp_path, "run", "kill-store", "--out", "all/6")
    assert over.returncode == 2 and "has a run: give this one another --out" in over.stderr
    assert chaos(tmp_path, "run", "kill-store", "--runs", "0").returncode == 2


def test_a_port_that_somebody_has_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.79.0.11", 0)) as taken:
        port = taken.getsockname()[1]
        copied(tmp_path, 'ports = ["http"]', f'ports = ["http"]\nfirst_port = {port}')
        told = chaos(tmp_path, "run", "kills.toml", "--no-sandbox")
    assert told.returncode == 2 and f"port http of store-1, 127.79.0.11:{port}: Address already in use" in told.stderr


def wait_until(true: object, patience_s: float = 60.0) -> None:
    assert callable(true)
    ends = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < ends, "not in time"
        threading.Event().wait(0.05)


def test_clean_ends_what_has_lost_its_run(tmp_path: Path) -> None:
    run = tmp_path / "lost"
    run.mkdir()
    (run / "lock").touch()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                          env=os.environ | {"QUORATE_RUN": str(run)}) as orphan:
        wait_until(lambda: left(run) == [orphan.pid])
        told = chaos(tmp_path, "clean", str(run))
        assert f"ended {orphan.pid} of {run}" in told.stdout
        none = chaos(tmp_path, "clean", str(run), "--json")
        assert json.loads(none.stdout) == {"ended": [], "unmounted": [], "removed": []}
        assert orphan.wait() == -signal.SIGKILL


async def mounted(folder: Path) -> None:
    """In a sandbox of its own."""
    await trio.to_thread.run_sync(disks_are_freed, folder)


def disks_are_freed(folder: Path) -> None:
    """Two are below what a run left, one is in a run that goes on, and one is no run's."""
    left_over, goes_on = folder / "left", folder / "goes-on"
    places = [left_over / "nodes" / "a" / "store", left_over / "nodes" / "b" / "store",
              goes_on / "nodes" / "a" / "store", folder / "others" / "nodes" / "a"]
    for place in places:
        place.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
    for run in (left_over, goes_on):
        (run / "schedule.json").write_text("{}")
    lock = RunDirectory(goes_on)
    lock.open()
    told = chaos(folder, "clean", str(goes_on), "--json")
    assert json.loads(told.stdout)["unmounted"] == [], "it goes on"
    told = chaos(folder, "clean", "--json")
    assert sorted(json.loads(told.stdout)["unmounted"]) == [str(place) for place in places[:2]], told.stderr
    mounts = Path("/proc/self/mounts").read_text()
    assert [str(place) in mounts for place in places] == [False, False, True, True]
    lock.close()
    told = chaos(folder, "clean", str(goes_on), "--remove")
    assert told.stdout.splitlines() == [f"unmounted {places[2]}", f"removed {goes_on}"]
    assert not goes_on.exists() and left_over.exists()


def test_clean_frees_the_disks_that_a_run_left(tmp_path: Path) -> None:
    sandboxed.run(mounted, tmp_path)


def copied(folder: Path, old: str, new: str) -> None:
    """The store and its scenario as a user's own files, with one change."""
    (folder / "kills.toml").write_text(
        KILLS.read_text().replace('target = "store"', 'target = "target.toml"').replace(old, new, 1))
    (folder / "target.toml").write_text(TARGET.read_text().replace(old, new, 1))
    shutil.copytree(TARGET.with_suffix(""), folder / "store")


@pytest.mark.parametrize(("old", "new", "words"), [
    ('fault = "kill"', 'fault = "kil"', "[faults 1] there is no fault 'kil'"),
    ('fault = "kill"', 'fault = "kill"\nargs = { side = "in" }', "kill takes no side"),
    ('nodes = "all"', 'nodes = "kind:sotre"', "there is no kind sotre; there are store"),
    ('nodes = "all"', 'nodes = "role:master"', "needs [roles]"),
    ('name = "register"', 'name = "registre"', "no workload is called registre"),
    ('target = "target.toml"', 'target = "nowhere.toml"', "there is no file"),
    ("seconds = 10", "seconds = ten", "no TOML"),
    ("seconds = 10", "seconds = 10\n[options]\nfalg = 1", "no option falg; did you mean flag"),
    ('nodes = "all"', 'nodes = "0 of kind:store"', "no node at all"),
    ("seconds = 10", "seconds = 10\n[check]\ncheckers = [\"linearisable\"]", "no checker is called linearisable"),
    ("seconds = 10", "seconds = 10\n[check.options]\nmodel = \"regster\"", "no model is called regster"),
    ("seconds = 10", "seconds = 10\n[check.options]\nmemory = \"lots\"", "argument --memory"),
    ("[nodes.store]", "[nodes.store]\nstop = \"SIGFOO\"", "stop is 'SIGFOO', which is no signal here"),
    ("[nodes.store]", "[nodes.store]\nfirst_port = 65536", "the last port would be beyond 65535"),
])
def test_what_is_asked_for_and_cannot_be(tmp_path: Path, old: str, new: str, words: str) -> None:
    copied(tmp_path, old, new)
    told = chaos(tmp_path, "run", "kills.toml")
    assert told.returncode == 2 and words in told.stderr, told.stdout + told.stderr
    assert "Traceback" not in told.stderr


ROLES = """\
import time
time.sleep(SECONDS)
print('{"master": ["store-1"]}', flush=True)
time.sleep(1_000)
"""


@pytest.mark.slow
def test_time_begins_when_roles_are_known(tmp_path: Path) -> None:
    """Else a fault on the master is skipped, and the run says nothing of a master's death."""
    copied(tmp_path, 'nodes = "all"', 'nodes = "role:master"')
    with (tmp_path / "target.toml").open("a") as target:
        target.write('\n[roles]\ncommand = ["{python}", "{here}/roles.py"]\n')
    (tmp_path / "roles.py").write_text(ROLES.replace("SECONDS", "6"))
    told = chaos(tmp_path, "run", "kills.toml", "--seed", "1", "--seconds", "3.5", "--no-sandbox")
    (run,) = (tmp_path / "chaos-runs").iterdir()
    found = json.loads((run / "run.json").read_text())
    assert found["faults"] >= 1 and not found["skipped"], told.stdout + told.stderr
    assert "names no" not in told.stdout + told.stderr


@pytest.mark.slow
def test_roles_that_nobody_tells_are_waited_for_so_long_and_no_longer(tmp_path: Path) -> None:
    copied(tmp_path, 'nodes = "all"', 'nodes = "role:master"')
    with (tmp_path / "target.toml").open("a") as target:
        target.write('\n[roles]\ncommand = ["{python}", "{here}/roles.py"]\n[well]\ncommand = ["true"]\n'
                     "timeout_s = 2\n")
    (tmp_path / "roles.py").write_text(ROLES.replace("SECONDS", "1_000"))
    told = chaos(tmp_path, "run", "kills.toml", "--seed", "1", "--seconds", "3.5", "--no-sandbox")
    assert "2 s ([well] timeout_s) are over, and [roles] names no master: faults" in told.stdout + told.stderr
    (run,) = (tmp_path / "chaos-runs").iterdir()
    assert "role:master: nobody is free" in json.loads((run / "run.json").read_text())["skipped"][0]


@pytest.mark.parametrize(("old", "new", "words"), [
    ('"{here}/store/server.py"', '"{here}/nothing.py"', "store-1 ended with exit code 2 before it was up"),
    ('["{python}", "-P", "{here}/store/server.py"', '["{here}/no-program"', "store-1 cannot be started"),
    ('"{here}/store/client.py"', '"{here}/nothing.py"', "the client does not begin with"),
    ('[client]', '[nodes.store.ready]\ncommand = ["no-such-program"]\n[client]', "[ready] command: no-such-program"),
    ('"{listen.http}"', '"{listen.htpt}"', "unknown placeholder {listen.htpt}; did you mean listen.http?"),
    ('[client]', '[build]\ncommand = ["false"]\n[client]', "[build] false ended with exit code 1"),
    ('[client]', '[build]\ncommand = ["no-such-builder"]\n[client]', "is it installed?"),
])
def test_a_target_that_does_not_come_up(tmp_path: Path, old: str, new: str, words: str) -> None:
    copied(tmp_path, old, new)
    told = chaos(tmp_path, "run", "kills.toml", "--no-sandbox")
    assert told.returncode == 2 and words in told.stderr, told.stdout + told.stderr
    assert "Traceback" not in told.stderr


def test_the_list(tmp_path: Path) -> None:
    told = chaos(tmp_path, "scenarios")
    assert told.returncode == 0
    assert "rolling-restart" in told.stdout and "register" in told.stdout
    assert chaos(tmp_path, "scenarios", "--show", "no-such").returncode == 2


def test_a_copy_is_whole_and_is_what_is_played(tmp_path: Path) -> None:
    told = chaos(tmp_path, "scenarios", "--copy", "raft-partition", "--to", "mine")
    files = ["raft-partition.toml", "raft-kv.toml", "raftkv/node.py", "raftkv/client.py"]
    assert told.returncode == 0 and told.stdout.split() == [f"mine/{name}" for name in files], told.stderr
    asked = asked_for(str(tmp_path / "mine" / files[0]))
    assert isinstance(asked, RunRequest) and asked.here == tmp_path / "mine"
    again = chaos(tmp_path, "scenarios", "--copy", "raft-kv", "--to", "mine")
    assert again.returncode == 2 and "mine/raft-kv.toml is there already" in again.stderr
    groups = chaos(tmp_path, "scenarios", "--copy", "thousand-failovers")
    assert groups.returncode == 2 and "names other scenarios: copy one of failovers-all-ack" in groups.stderr
