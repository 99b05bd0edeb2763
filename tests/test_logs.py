"""What is in a log line, and what must not be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import logging, sys
from pgcron_runner.logs import configure_logs, get_logger

configure_logs(as_json=sys.argv[1] == "json", level="debug")

def connect(password):
    token = password.upper()
    raise LookupError("the reason")

try:
    connect(sys.argv[2])
except LookupError:
    get_logger("pgcron_runner.x").exception("failed", job="nightly")
logging.getLogger("psycopg.pool").error("bare text")
logging.getLogger("aiohttp.client").error("bare text")
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_tells_the_reason_and_no_value_of_a_variable(form: str) -> None:
    command = [sys.executable, "-c", _SCRIPT, form, "s3cr3t-1"]
    root = Path(__file__).resolve().parents[1]
    log = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stderr
    assert "the reason" in log
    assert "connect" in log
    assert "s3cr3t" not in log.lower()
    assert "bare text" not in log
    if form == "json":
        (line,) = map(json.loads, log.splitlines())
        assert (line["event"], line["job"], line["exception"][0]["exc_type"]) == ("failed", "nightly", "LookupError")
