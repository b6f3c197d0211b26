"""One small Spark session for the modules here; where Java is missing they say so, as not run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import analysis
from analysis.errors import JavaMissing
from analysis.session import LIGHT, check_java


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Somebody's own session, in whose PATH ``python3`` is one that cannot run this."""
    try:
        check_java()
    except JavaMissing as error:
        pytest.skip(f"not run: {error}")
    broken = tmp_path_factory.mktemp("bin") / "python3"
    broken.write_text("#!/bin/sh\nexit 77\n")
    broken.chmod(0o755)
    settings: dict[str, bool | float | int | str | None] = {
        **LIGHT, "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as environment:
        warnings.simplefilter("ignore")
        environment.delenv("PYSPARK_PYTHON", raising=False)
        environment.setenv("PATH", str(broken.parent), prepend=os.pathsep)
        found = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
        assert found.sparkContext.pythonExec == "python3"
        analysis.register(found)
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()
