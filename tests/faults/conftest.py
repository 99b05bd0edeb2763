"""What every fault test stands on: a database whose jobs write down the truth themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stage import Stage
from tests.support.databases import Database


@pytest.fixture
def stage(database: Database, tmp_path: Path) -> Iterator[Stage]:
    with Stage(database, tmp_path) as stage:
        yield stage
