"""drv_env: deep research as a Gymnasium environment.

Importing it registers ``drv_env/DeepResearch-v0`` with Gymnasium.
"""

import gymnasium

from drv_env.async_face import AsyncFace, VectorAsyncFace
from drv_env.context import TextCounter
from drv_env.env import DeepResearchEnv
from drv_env.episode import Ending, Episode, Rules
from drv_env.errors import (
    DrvError,
    EngineError,
    JudgeError,
    SettingError,
    TaskDataError,
    ToolError,
)
from drv_env.own_names import explain_missing_modules
from drv_env.rewards.records import TurnReward
from drv_env.spaces import SampledText, TextSpace
from drv_env.tasks import Task
from drv_env.vector import DeepResearchVectorEnv
from drv_env.vector_wrappers import VectorFormatPenalty, VectorInformationGainReward
from drv_env.wrappers import FormatPenalty, InformationGainReward

__version__ = "0.1.0"
explain_missing_modules()
ENV_ID = "drv_env/DeepResearch-v0"

gymnasium.register(
    ENV_ID,
    entry_point="drv_env.env:DeepResearchEnv",
    vector_entry_point="drv_env.vector:DeepResearchVectorEnv",
    # It checks by itself what Gymnasium's two wrappers check, and they have no `await env.astep()`.
    order_enforce=False,
    disable_env_checker=True,
)

__all__ = [
    "ENV_ID",
    "AsyncFace",
    "DeepResearchEnv",
    "DeepResearchVectorEnv",
    "DrvError",
    "Ending",
    "EngineError",
    "Episode",
    "FormatPenalty",
    "InformationGainReward",
    "JudgeError",
    "Rules",
    "SampledText",
    "SettingError",
    "Task",
    "TaskDataError",
    "TextCounter",
    "TextSpace",
    "ToolError",
    "TurnReward",
    "VectorAsyncFace",
    "VectorFormatPenalty",
    "VectorInformationGainReward",
    "__version__",
]
