"""The same report on a Spark standalone cluster of two workers, which know of this project only what is shipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from analysis.errors import JavaMissing
from analysis.session import check_java
from tests.analysis.report.browser import Seen, seen
from tests.analysis.scene import plant, story, write_traces

pytestmark = [pytest.mark.java, pytest.mark.slow]

SPARK = Path(pyspark.__file__).parent
PATIENCE_S = 240


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
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        found = re.search(pattern, log.read_text(errors="replace")) if log.exists() else None
        if found:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(f"{log} never said {pattern!r}:\n{log.read_text(errors='replace')[-2_000:]}")


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
def master(tree: Path) -> Iterator[str]:
    """The address of a cluster of two workers with one core each."""
    try:
        check_java()
    except JavaMissing as error:
        pytest.skip(f"not run: {error}")
    env = {"PATH": os.environ["PATH"], "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1",
           "SPARK_DAEMON_MEMORY": "256m",
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


def made(tree: Path, name: str, *options: str, **env: str) -> Seen:
    """The page that the command makes, read."""
    page = tree / f"{name}.html"
    done = subprocess.run(
        [sys.executable, "-m", "analysis.cli", str(tree / "logs"), "--out", str(page), "--title", "Both",
         "--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.host=127.0.0.1",
         "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=1g", *options],
        capture_output=True, text=True, timeout=900, env={**os.environ, **env}, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "findings" in done.stdout
    return seen(page.read_text())


def test_the_report_of_a_cluster_is_that_of_one_machine(tree: Path, master: str) -> None:
    python = bare_python(tree)
    there = made(tree, "cluster", "--master", master, "--conf", "spark.executor.memory=700m",
                 PYSPARK_PYTHON=str(python), PYSPARK_DRIVER_PYTHON=sys.executable)
    here = made(tree, "local", "--master", "local[2]")
    assert there.figures == here.figures
    assert sorted((each.rule, each.file, each.offset) for each in there.findings) == sorted(
        (each.rule, each.file, each.offset) for each in here.findings)
    assert len(here.findings) >= 5
    assert {name: sorted(rows) for name, rows in there.tables.items()} == {
        name: sorted(rows) for name, rows in here.tables.items()}
    assert there.rows_of == here.rows_of
    executed = [work for number in range(2) for work in (tree / f"work-{number}").glob("app-*/*/stderr")]
    assert len(executed) >= 2, "both workers ran an executor"
