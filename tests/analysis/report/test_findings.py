"""Queries that a reader is to copy say what they seem to, whatever brokers and groups are called."""

from __future__ import annotations

import ast

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from analysis.report.findings import _query

NAMES = ("a", 'a""" + open("x") + """', "it's", '"', "\\", "\\'", "a\nb", "\\n", "\u2028", "a' or true or 'a")


@pytest.mark.parametrize("name", NAMES)
def test_names_are_no_code(name: str) -> None:
    text = _query("outages", "lasted_ms > 5", ("broker_name", "index"), Row(broker_name=name, index=7))
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call) and [type(each) for each in call.args] == [ast.Constant]
    assert isinstance(call.func, ast.Attribute) and call.func.attr == "where"
    assert isinstance(call.func.value, ast.Call) and ast.unparse(call.func.value) == "logs.ask('outages')"


@pytest.mark.java
def test_each_query_finds_the_row_that_it_is_of(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(name, 7) for name in NAMES], "broker_name string, index long")
    conditions = []
    for name in NAMES:
        text = _query("outages", "true", ("broker_name", "index"), Row(broker_name=name, index=7))
        call = ast.parse(text, mode="eval")
        assert isinstance(call.body, ast.Call)
        conditions.append(ast.literal_eval(call.body.args[0]))
    [found] = rows.agg(*[F.collect_list(F.when(F.expr(condition), F.col("broker_name"))) for condition in conditions]
                       ).collect()
    assert list(found) == [[name] for name in NAMES]
