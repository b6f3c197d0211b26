"""Whether Java's tool did what it was asked: it exits with 0 in any case."""

from __future__ import annotations

import pytest

from harness.processes.java.admin import AdminRun


@pytest.mark.parametrize(("stdout", "stderr", "ok"), [
    ("create topic to 127.0.0.1:10911 success.", "", True),
    ("pullTimeDelayMillsWhenException         : 1000", "", True),
    ("", "org.apache.rocketmq.tools.command.SubCommandException: ClusterListSubCommand command failed", False),
    ("Caused by: java.lang.IllegalStateException", "", False),
])
def test_an_exception_is_told_by_its_class_and_package(stdout: str, stderr: str, ok: bool) -> None:
    assert AdminRun(("any",), 0, stdout, stderr).ok is ok
    assert not AdminRun(("any",), 1, stdout, stderr).ok
