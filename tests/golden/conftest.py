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


@pytest.fixture(scope="session")
def golden_folder(golden: Callable[[str], Any]) -> Path:
    """The folder itself, for files that are not JSON."""
    return Path(os.environ["DRV_GOLDEN"])


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data that DRV_DATA names."""
    folder = os.environ.get("DRV_DATA")
    if not folder:
        pytest.skip("DRV_DATA is unset: the real data are not on this machine")
    return Path(folder)


@pytest.fixture(scope="session")
def cases() -> Callable[[str], list[Any]]:
    """Reads a file of JSON lines from the folder DRV_CASES names."""
    folder = os.environ.get("DRV_CASES")
    if not folder:
        pytest.skip("DRV_CASES is unset: the collected inputs are not on this machine")

    def read(name: str) -> list[Any]:
        lines = (Path(folder) / name).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]

    return read
