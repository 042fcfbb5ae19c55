"""The file that OpenRLHF's ``--train.agent_func_path`` names; it loads the class by its name."""

from __future__ import annotations

from typing import Any

from openrlhf.utils.agent import AgentExecutorBase

from trainers.openrlhf.episodes import EpisodePlayer
from trainers.openrlhf.run import read_run, task_of


class AgentExecutor(AgentExecutorBase):
    """Plays one episode of a task; OpenRLHF makes one a process, without arguments."""

    def __init__(self) -> None:
        self.player = EpisodePlayer(read_run())

    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """One episode of the task that ``label`` holds."""
        trajectory = await self.player.play(
            task_of(label), llm_engine, sampling_params.temperature, sampling_params.top_p
        )
        return self.player.answer(trajectory, prompt, label)
