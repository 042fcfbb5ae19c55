"""The agent that the tests train, and runs of OpenRLHF in processes of their own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

MACHINE = Path(__file__).parent / "cpu_machine"

collect_ignore = [str(MACHINE)]
if importlib.util.find_spec("openrlhf") is None:
    collect_ignore_glob = ["*.py"]
else:
    from tests.cluster.openrlhf.cloned_agent import ClonedAgent, clone_agent


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Of so small a model threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def agent(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> ClonedAgent:
    return clone_agent(tmp_path_factory.mktemp("cloned") / "model")


@pytest.fixture(scope="session")
def importable() -> Iterator[None]:
    """OpenRLHF's modules can be imported in this process, though there is no GPU."""
    spec = importlib.util.spec_from_file_location("cpu_machine", MACHINE / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.meta_path)
    spec.loader.exec_module(module)
    yield
    sys.meta_path[:] = before


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:  # a run is a minute or two, where others work too many
            item.add_marker(pytest.mark.timeout(1800), append=False)
