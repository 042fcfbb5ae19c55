"""Golden values of the reference implementation, from the folder DRV_GOLDEN names."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    folder = os.environ.get("DRV_GOLDEN")
    if not folder:
        pytest.skip("DRV_GOLDEN is unset: the reference values are not on this machine")

    def read(name: str) -> Any:
        return json.loads((Path(folder) / name).read_text(encoding="utf-8"))

    return read
