"""Pytest fixtures, found through the ``pytest11`` entry point.

What the fixtures need is imported when one is asked for; other test suites pay for the
import of ``drv_env`` alone, which is light.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from drv_env.env import DeepResearchEnv
    from drv_env.tools.fake import FakeTools


@pytest.fixture
def fake_tools() -> FakeTools:
    """Scripted tools with plausible replies."""
    from drv_env.tools.fake import FakeTools

    return FakeTools()


@pytest.fixture
def research_env() -> Iterator[Callable[..., DeepResearchEnv]]:
    """A function that makes envs (closed at the test's end).

    Call it with ``tools=`` and any other argument of
    :class:`drv_env.env.DeepResearchEnv`; ``tasks`` has a default question.
    """
    from drv_env.env import DeepResearchEnv
    from drv_env.tools.fake import FakeTools

    made: list[DeepResearchEnv] = []

    def make(**arguments: Any) -> DeepResearchEnv:
        arguments.setdefault("tasks", [("What is the capital of France?", "Paris")])
        arguments.setdefault("tools", FakeTools())
        made.append(DeepResearchEnv(**arguments))
        return made[-1]

    yield make
    for env in made:
        env.close()
