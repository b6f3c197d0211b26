"""The same report on a Spark standalone cluster of two workers, which know of this project only what is shipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from analysis.logs import open_logs
from analysis.report import report
from analysis.session import LIGHT
from tests.analysis.report.browser import seen
from tests.analysis.scene import plant, story, write_traces
from tests.analysis.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.campaign]

SPARK = Path(pyspark.__file__).parent
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PATIENCE_S = 1_200


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cluster")
    plant(root / "logs")
    write_traces(root / "logs" / "traces", story())
    return root


@contextmanager
def spark_process(log: Path, *arguments: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen([str(SPARK / "bin" / "spark-class"), *arguments], stdout=out, stderr=out, env=env)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def said(log: Path, pattern: str) -> str:
    """What a process writes into its log, once it has."""
    found = until(lambda: re.search(pattern, log.read_text(errors="replace")) if log.exists() else None,
                  f"{log} saying {pattern!r}")
    assert found is not None
    return found[1]


def bare_python(directory: Path) -> Path:
    """An interpreter with the installed libraries and without this checkout: like one on another machine."""
    script = directory / "python"
    site = sysconfig.get_paths()["purelib"]
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    known = subprocess.run([str(script), "-c", "import pyarrow, analysis"], capture_output=True, text=True, cwd="/",
                           env={"PATH": os.environ["PATH"]}, check=False)
    assert "No module named 'analysis'" in known.stderr, "the workers must not know the checkout by themselves"
    return script


@pytest.fixture(scope="module")
def master(spark: SparkSession, tree: Path) -> Iterator[str]:
    """The address of a cluster of two workers with one core each. ``spark``: where Java is missing, that says so."""
    env = {"PATH": os.environ["PATH"], "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1",
           "SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": SMALL,
           **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {})}
    with ExitStack() as stack:
        log = tree / "master.log"
        stack.enter_context(spark_process(
            log, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
            env=env))
        address = said(log, r"Starting Spark master at (spark://\S+)")
        for number in range(2):
            stack.enter_context(spark_process(
                tree / f"worker-{number}.log", "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1",
                "-c", "1", "-m", "1g", "-d", str(tree / f"work-{number}"), "--webui-port", "0", address, env=env))
            said(tree / f"worker-{number}.log", r"(Successfully registered with master)")
        yield address


def test_the_report_of_a_cluster_is_that_of_one_machine(spark: SparkSession, tree: Path, master: str) -> None:
    """The cluster's by the command, in a process of its own; its workers read what the driver reads here."""
    page = tree / "cluster.html"
    settings = {
        **LIGHT, "spark.driver.host": "127.0.0.1", "spark.driver.memory": "512m", "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2", "spark.executor.extraJavaOptions": SMALL}
    done = subprocess.run(
        [sys.executable, "-m", "analysis.cli", str(tree / "logs"), "--out", str(page), "--title", "Both",
         "--master", master, *(part for each in settings.items() for part in ("--conf", "=".join(each)))],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={**os.environ, "PYSPARK_PYTHON": str(bare_python(tree)), "PYSPARK_DRIVER_PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "findings" in done.stdout
    there = seen(page.read_text())
    logs = open_logs(spark, str(tree / "logs"))
    assert logs.in_driver
    report(logs, tree / "local.html", title="Both")
    here = seen((tree / "local.html").read_text())
    assert there.figures == here.figures
    assert sorted((each.rule, each.file, each.offset) for each in there.findings) == sorted(
        (each.rule, each.file, each.offset) for each in here.findings)
    assert len(here.findings) >= 5
    assert {name: sorted(rows) for name, rows in there.tables.items()} == {
        name: sorted(rows) for name, rows in here.tables.items()}
    assert there.rows_of == here.rows_of
    executed = [work for number in range(2) for work in (tree / f"work-{number}").glob("app-*/*/stderr")]
    assert len(executed) >= 2, "both workers ran an executor"
