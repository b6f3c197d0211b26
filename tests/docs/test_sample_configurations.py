"""Each sample configuration runs as it is, but for ports and folders; its deployment outlives the loss of a master."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from harness.demo.deployments import DEPLOYMENTS, SAMPLES, run

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "choose-a-deployment.md"


@pytest.mark.slow
@pytest.mark.parametrize("name", DEPLOYMENTS)
async def test_a_deployment(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As the demo shows it."""
    assert await run(argparse.Namespace(deployment=name), tmp_path) == 0
    said = capsys.readouterr().out
    assert "NOTHING ACKNOWLEDGED WAS LOST" in said
    kind = DEPLOYMENTS[name]
    if kind.controllers:
        assert re.search(r"controller/broker-n\d.conf is master of broker-a now", said)
    else:
        others = "broker-b" if len(kind.brokers) > 1 else "no group"
        assert f"sends meanwhile: {others} acknowledged, broker-a did not" in said
    assert ("its slave acts, and delivered them at another group" in said) is kind.acts
    [acknowledged] = re.findall(r"acknowledged ([\d,]+), consumed", said)
    assert int(acknowledged.replace(",", "")) > 10


def test_every_sample_is_run_and_every_deployment_is_on_the_page() -> None:
    there = {str(path.relative_to(SAMPLES)) for path in SAMPLES.rglob("*") if path.is_file()}
    assert there == {file for kind in DEPLOYMENTS.values() for file in kind.files}
    page = PAGE.read_text()
    assert [name for name in DEPLOYMENTS if f'make demo ARGS="--deployment {name}"' not in page] == []
