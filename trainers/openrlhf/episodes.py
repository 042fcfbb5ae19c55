"""Our episodes on OpenRLHF's engine: what its agent executor does, without OpenRLHF.

One call plays one episode, by the rollout engine (:mod:`agents.rollout`): token-exact
transcripts, a cap on each turn, deadlines, broken episodes tried again.  Whatever breaks an
episode is data and ends neither the batch nor the run.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from agents.rollout import rollout
from drv_env.episode import Ending
from drv_env.errors import EngineError
from drv_env.tasks import Task
from replay.counter import TemplateCounter
from replay.trajectory import Trajectory
from trainers.information_gain import gains_by_engine
from trainers.openrlhf.engine import RayEngine
from trainers.openrlhf.records import KEY, pack
from trainers.openrlhf.run import TASKS, OpenRLHFRun, read_tasks
from trainers.registry import import_plugins


class EpisodePlayer:
    """Plays the run's episodes in one process.

    Args:
        run: whose game is made here.

    ``rollout.max_episodes`` and ``max_calls`` hold for this process: for each engine.
    """

    def __init__(self, run: OpenRLHFRun) -> None:
        rl = run.rl
        import_plugins(rl.plugins)  # which may register tools and outcomes
        self.run = run
        self.template = run.template()
        self.game = rl.game.make(
            read_tasks(run.out / TASKS), TemplateCounter(self.template), rl.config.rollout.max_calls
        )
        self._sampling = run.sampling(self.template)
        self._settings = replace(
            rl.config.rollout, group_size=1, max_episodes=1, max_calls=None, seed=None
        )
        self._places = asyncio.Semaphore(rl.config.rollout.max_episodes)

    async def play(
        self, task: Task, actor: Any, temperature: float = 1.0, top_p: float = 1.0
    ) -> Trajectory:
        """One episode, over; broken at worst.

        Args:
            task: the question.
            actor: OpenRLHF's actor around vLLM.
            temperature: of the sampling; another than 1 in evaluations alone.
            top_p: likewise.

        Raises:
            SettingError: when engine, template and rules don't fit each other.
        """
        assert self.game.rules.max_context is not None  # checked before the start
        engine = RayEngine(actor, self.template.pieces, self.game.rules.max_context)
        sampling = replace(self._sampling, temperature=temperature, top_p=top_p)
        async with self._places:
            (trajectory,) = await rollout(
                self.game, engine, self.template, [task], sampling, self._settings
            )
        config = self.run.rl.config
        if config.credit.information_gain and config.gain_by == "engine":
            try:
                (trajectory,) = await gains_by_engine(
                    [trajectory], engine, self.template, config.gain
                )
            except EngineError as error:
                trajectory = _broken(trajectory, error)
        return trajectory

    def answer(self, trajectory: Trajectory, prompt: str, label: str) -> dict[str, Any]:
        """The episode as OpenRLHF takes it.

        A broken episode has a reward of 0.0 here, which nobody reads: the record says that
        it broke.
        """
        ids: list[int] = []
        ranges: list[tuple[int, int]] = []
        log_probs: list[float] = []
        transcript = trajectory.transcript
        if transcript is not None:
            ids = transcript.ids.tolist()
            log_probs = [0.0] * len(ids)
            spans = [span for span in transcript.spans if span.kind == "completion"]
            for span, known in zip(spans, transcript.log_probs, strict=True):
                ranges.append((span.start, span.stop))
                if known is not None:
                    log_probs[span.start : span.stop] = known.tolist()
        while len(ids) < 2:  # OpenRLHF needs something to put in a row
            ids.append(self.template.end_of_turn)
            log_probs.append(0.0)
        outcome = 0.0 if trajectory.outcome is None else float(trajectory.outcome)
        return {
            "prompt": prompt,
            "label": label,
            "images": None,
            "mm_train_inputs": None,
            "reward": outcome,
            "scores": outcome,
            "observation_tokens": ids,
            "action_ranges": ranges,
            "rollout_log_probs": log_probs,
            "truncated": trajectory.ending is not Ending.ANSWERED,
            "extra_logs": {KEY: pack(trajectory)},
        }


def _broken(trajectory: Trajectory, error: EngineError) -> Trajectory:
    """An episode that was played and can't be scored."""
    rewards = tuple(replace(reward, outcome=None) for reward in trajectory.rewards)
    return replace(trajectory, ending=Ending.BROKEN, error=str(error), rewards=rewards)
