"""``chaos run`` of a service that does not come back after a fault: a verdict in words and a page, no traceback."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.harness.chaos.test_run import PLAIN, chaos, left

SERVICE = '''
import os, socket, sys, threading
from pathlib import Path
how, listen, data = sys.argv[1], sys.argv[2], Path(sys.argv[3])
first = not (data / "began").exists()
(data / "began").touch()
if not first:
    print("I read what I have", flush=True)
    if how == "exits":
        sys.exit("my log is damaged at byte 42")
    if how == "hangs":
        print("I wait for a lock that nobody gives back", flush=True)
        threading.Event().wait()
host, port = listen.rsplit(":", 1)
try:
    taken = socket.create_server((host, int(port)))
except OSError as error:
    sys.exit(str(error))
if how == "port" and not os.fork():
    os.setsid()
    threading.Event().wait()
print("I serve", flush=True)
while True:
    taken.accept()[0].close()
'''
CLIENT = '''
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    print(json.dumps({"id": json.loads(line)["id"], "type": "fail", "error": "no"}), flush=True)
'''
TARGET = '''
about = "One node that a restart is too much for."
[options]
how = "exits"
[nodes.frail]
ports = ["any"]
command = ["{python}", "-P", "{here}/service.py", "{option.how}", "{listen.any}", "{data}"]
ready = { line = "I serve", timeout_s = 2 }
[client]
command = ["{python}", "-P", "{here}/client.py"]
[well]
command = ["true"]
timeout_s = 1
'''
SCENARIO = '''
about = "One kill, or a restart."
target = "target.toml"
seconds = 1.5
seed = 1
[workload]
name = "register"
clients = 1
[[faults]]
fault = "FAULT"
nodes = "all"
at_s = 0.3
hold_s = [0.2, 0.2]
'''


def service(folder: Path, fault: str) -> None:
    for name, text in (("service.py", SERVICE), ("client.py", CLIENT), ("target.toml", TARGET),
                       ("scenario.toml", SCENARIO.replace("FAULT", fault))):
        (folder / name).write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("where", [PLAIN])
@pytest.mark.parametrize("fault", ["kill", "rolling-restart"])
@pytest.mark.parametrize(("how", "died", "last"), [
    ("exits", "frail-1 ended with exit code 1 before it was up", "my log is damaged at byte 42"),
    ("hangs", "frail-1 was not up within 2 s (line I serve)", "I wait for a lock that nobody gives back"),
    ("port", "frail-1 ended with exit code 1 before it was up", "Address already in use"),
])
def test_who_does_not_come_back_is_named(tmp_path: Path, where: list[str], fault: str, how: str, died: str,
                                         last: str) -> None:
    service(tmp_path, fault)
    told = chaos(tmp_path, "run", "scenario.toml", "--option", f"how={how}", "--out", "run", "--json", *where)
    run = tmp_path / "run"
    for pid in left(run):  # who keeps the port is in no process group of the run
        os.kill(pid, signal.SIGKILL)
    assert told.returncode == 1 and "Traceback" not in told.stderr, told.stdout + told.stderr
    nodes = json.loads(told.stdout)["checkers"]["nodes"]
    assert nodes["valid"] is False and nodes["asked"]["faults"] == 1
    broken = {each["promise"]: each["what"] for each in reversed(nodes["broken"])}
    assert broken["alive"].startswith(f"{died}\n") and last in broken["alive"]
    assert broken["well"].startswith("frail-1 is not up (line I serve), ") and last in broken["well"]
    about = json.loads((run / "run.json").read_text())
    assert not about["well"] and about["unwell"] == [broken["well"]] and broken["alive"] in about["died"]
    assert last in (run / "page.html").read_text()
    phases = [json.loads(line)["phase"] for line in (run / "nemesis.jsonl").read_text().splitlines()]
    assert phases == ["start", "end"]


@pytest.mark.slow
def test_what_the_target_says_of_itself_is_told(tmp_path: Path) -> None:
    service(tmp_path, "pause")
    text = (tmp_path / "target.toml").read_text()
    once = "test -e {run}/once || exec touch {run}/once; echo two of three copies; exit 5"
    (tmp_path / "target.toml").write_text(text.replace('["true"]', f'["sh", "-c", "{once}"]'))
    told = chaos(tmp_path, "run", "scenario.toml", "--out", "run", "--no-sandbox")
    assert told.returncode == 1 and "Traceback" not in told.stderr, told.stdout + told.stderr
    assert "well: all nodes are up, but [well] ends with 5\n    two of three copies" in told.stdout
    for command, words in (('"no-such-program"', "[well] no-such-program: No such file"),
                           ('"false"', "not well before anything was done to it\nall nodes are up, but [well] ends")):
        (tmp_path / "target.toml").write_text(text.replace('"true"', command))
        refused = chaos(tmp_path, "run", "scenario.toml", "--out", command.strip('"'), "--no-sandbox")
        assert refused.returncode == 2 and words in refused.stderr, refused.stderr
        assert command != '"false"' or "frail-1:\nI serve" in refused.stderr, "its log says why"
        assert "Traceback" not in refused.stderr
