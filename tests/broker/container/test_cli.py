"""``mqbrokercontainer``: what it prints, and what it refuses before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.container.cli import IMPORTANT, main
from remoting.daemon.process import STOPPED, USAGE


def test_what_it_would_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "container.conf"
    file.write_text("brokerConfigPaths=/a.conf\nnamesrvAddr=10.0.0.1:9876\nrocketmqHome=/opt\n")
    assert main(["-c", str(file), "-n", "10.0.0.2:9876", "-b", "/b.conf:/c.conf", "-m"]) == STOPPED
    shown = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert shown.keys() == IMPORTANT
    assert (shown["namesrvAddr"], shown["brokerConfigPaths"]) == ("10.0.0.2:9876", "/b.conf:/c.conf")
    assert main(["-c", str(file), "-p", "-D", "listenPort=20811"]) == STOPPED
    shown = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert (shown["listenPort"], shown["rocketmqHome"], shown["configStorePath"]) == ("20811", "/opt", str(file))


@pytest.mark.parametrize(("given", "words"), [
    (["-c", "/nowhere/container.conf"], "there is no such file"), (["-n", "nowhere"], "namesrvAddr = nowhere"),
    (["-D", "listenPort=x"], "listenPort = x: must be a whole number")])
def test_what_cannot_be_used_is_said(given: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == USAGE
    said = capsys.readouterr().err
    assert said.startswith("mqbrokercontainer: ") and words in said and "Traceback" not in said
