"""Signals and sockets of the servers' commands."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from remoting.daemon.exporter import MetricsKeys
from remoting.daemon.files import MemoryFiles
from remoting.daemon.keys import ConfigError, Missing, names
from remoting.daemon.process import (
    FAILED,
    STOPPED,
    USAGE,
    Stoppable,
    check_exporter,
    given_and_unknown,
    listen,
    run_server,
    run_until_stopped,
    server_parser,
    tell_of_idle_keys,
    tell_of_readable_keys,
)

ROOT = Path(__file__).parents[3]

KNOWN = {*names(MetricsKeys), "threads", "wheel"}
FEATURES = {"wheel": Missing("timers", "false")}


def told(text: str, caplog: pytest.LogCaptureFixture, *flags: str) -> list[tuple[str, str, str]]:
    """Level, key, and what is said of it."""
    options = server_parser("mqx", "", "", MetricsKeys).parse_args(["-c", "conf", *flags])
    given, strange = given_and_unknown(options, MemoryFiles({"conf": text.encode()}), {*KNOWN, "configStorePath"})
    metrics = MetricsKeys(metrics_exporter_type=given.get("metricsExporterType", "DISABLE"))
    with caplog.at_level(logging.INFO):
        tell_of_idle_keys(
            {name: given[name] for name in given if name in ("threads", "wheel")}, strange, FEATURES, metrics, None)
    found = []
    for record in caplog.records:
        said = vars(record)
        found.append((record.levelname, said.get("key", ""),
                      said.get("missing") or said.get("perhaps_meant") or record.getMessage()))
    return found


def test_what_a_key_that_means_nothing_asked_for_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert told("""threads=8
wheel = TRUE
metricsExporterType=OTLP_GRPC
metricsPromExporterProt=1
zzz=1
""", caplog) == [
        ("WARNING", "metricsPromExporterProt", "metricsPromExporterPort"),
        ("WARNING", "zzz", "no known key; it means nothing"),
        ("INFO", "threads", "key without a meaning here"),
        ("WARNING", "wheel", "timers"),
        ("WARNING", "metricsExporterType", "metricsGrpcExporterTarget, whom metrics go to: none are exported"),
    ]


def test_a_value_that_asks_for_nothing_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert told("wheel=false", caplog) == []


def test_who_prints_a_configuration_sees_what_is_no_key(caplog: pytest.LogCaptureFixture) -> None:
    assert told("wheeel=1", caplog, "-p")[0] == ("WARNING", "", "wheeel = 1: is no known key; wheel is")


class Server:
    """Stops when it is told to."""

    def __init__(self) -> None:
        self.told = trio.Event()

    async def stop(self) -> None:
        self.told.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_start_that_does_not_end(number: signal.Signals) -> None:
    async def serve(task_status: trio.TaskStatus[Stoppable]) -> None:
        signal.raise_signal(number)
        await trio.sleep_forever()

    with trio.fail_after(10):
        await run_until_stopped(serve, lambda: pytest.fail("it has not started"))


async def test_a_signal_stops_a_server_in_order() -> None:
    server, said = Server(), []

    async def serve(task_status: trio.TaskStatus[Stoppable]) -> None:
        task_status.started(server)
        await server.told.wait()

    def started() -> None:
        said.append("started")
        signal.raise_signal(signal.SIGTERM)

    with trio.fail_after(10):
        await run_until_stopped(serve, started)
    assert said == ["started"] and server.told.is_set()


@pytest.mark.parametrize("host", ["a..b", "\udcff"])
async def test_an_address_that_no_host_can_have_is_said(host: str) -> None:
    with pytest.raises(OSError, match=r"cannot listen at .*choose another listenPort or bindAddress"):
        await listen(host, 0)


def test_a_key_that_everybody_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, mode in (("open", 0o644), ("closed", 0o640)):
        (tmp_path / name).write_text("key")
        (tmp_path / name).chmod(mode)
    tell_of_readable_keys(str(tmp_path / "open"), str(tmp_path / "closed"), "", str(tmp_path / "absent"))
    assert [vars(record)["path"] for record in caplog.records] == [str(tmp_path / "open")]


def test_metrics_without_their_packages_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    check_exporter(MetricsKeys(metrics_exporter_type="PROM"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    check_exporter(MetricsKeys())
    with pytest.raises(ConfigError, match=r"needs prometheus_client and h11: pip install 'quorate\[metrics\]'"):
        check_exporter(MetricsKeys(metrics_exporter_type="2"))
    reports = MetricsKeys(metrics_exporter_type="OTLP_GRPC", metrics_grpc_exporter_target="h:1")
    with pytest.raises(ConfigError, match=r"grpc and opentelemetry.proto: pip install 'quorate\[otlp\]'"):
        check_exporter(reports)
    check_exporter(MetricsKeys(metrics_exporter_type="OTLP_GRPC"))  # to nobody


def test_part_of_a_package_is_not_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "opentelemetry.proto" else name)
    with pytest.raises(ConfigError, match=r"needs opentelemetry.proto: pip install 'quorate\[otlp\]'"):
        check_exporter(MetricsKeys(metrics_exporter_type="1", metrics_grpc_exporter_target="h:1"))


@pytest.mark.parametrize("arguments", [
    ["broker.cli", "-p"], ["broker.cli", "-h"], ["controller.cli", "-p"], ["controller.namesrv.cli", "-p"],
    ["mqcluster.cli", "-h"], ["controller.admin.cli", "-h"],
])
def test_nobody_who_reads_on_is_no_failure(arguments: list[str]) -> None:
    reads, writes = os.pipe()
    os.close(reads)  # as `| head` does, only sooner
    module, *flags = arguments
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; from {module} import main; sys.exit(main())", *flags],
            stdout=writes, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (0, "")


class Broken(Exception):
    """Names what a server knows how to tell."""


async def _break() -> None:
    async with trio.open_nursery():
        raise Broken("the log is damaged") from OSError("sector 7")


def test_what_ends_a_server_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_server("mqx", lambda: lambda: trio.run(_break), (Broken,)) == FAILED
    assert capsys.readouterr().err == "mqx: the log is damaged: sector 7\n"
    with pytest.raises(ExceptionGroup):  # what nobody foresaw keeps its trace
        run_server("mqx", lambda: lambda: trio.run(_break), (OSError,))


def test_what_hinders_a_start_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    def prepare() -> None:
        raise ConfigError("listenPort", "x", "must be a number")

    assert run_server("mqx", prepare, (Broken,)) == USAGE
    assert capsys.readouterr().err.startswith("mqx: listenPort")


def test_a_run_has_its_own_exit_code() -> None:
    assert run_server("mqx", lambda: lambda: 7, ()) == 7
    assert run_server("mqx", lambda: lambda: None, ()) == STOPPED
    assert run_server("mqx", lambda: None, ()) == STOPPED
