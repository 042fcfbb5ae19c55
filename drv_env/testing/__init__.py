"""For people's own tests: scripted tools and scorers, without keys or a network.

With drv-env installed, pytest also has the fixtures ``fake_tools`` and ``research_env``
(:mod:`drv_env.testing.plugin`).
"""

from drv_env.testing.scorer import FakeScorer
from drv_env.tools.fake import FakeTools, ManualClock, failing

__all__ = ["FakeScorer", "FakeTools", "ManualClock", "failing"]
