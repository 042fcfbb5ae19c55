"""The reward wrappers for vectors of envs: same definitions, arrays in place of numbers.

They work with every autoreset mode, in either order, and pay each sub-environment what
:mod:`drv_env.wrappers` would pay it alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.vector import VectorWrapper

from drv_env.async_face import aclose, areset, astep, on_scorers_thread
from drv_env.episode import Ending
from drv_env.errors import DrvError, EngineError, SettingError, boundary
from drv_env.game import Info
from drv_env.rewards.information_gain import GainKind, GainTracker, GoldAnswers, Scorer
from drv_env.vector import DeepResearchVectorEnv
from drv_env.wrappers import check_penalty

Texts = tuple[str, ...]
Stepped = tuple[Texts, np.ndarray, np.ndarray, np.ndarray, Info]
"""What a step gives: observations, rewards, terminated, truncated, infos."""
VectorOfText = gymnasium.vector.VectorEnv[Texts, Sequence[str], np.ndarray]


class VectorInformationGainReward(VectorWrapper):
    """:class:`~drv_env.wrappers.InformationGainReward` for a vector env.

    Args:
        env: made of :class:`~drv_env.vector.DeepResearchVectorEnv`.
        scorer: gives the model's belief in an answer; held by reference, asked for one
            sub-environment after the other.
        tools: names of the tools whose calls are scored.
        kind: ``"log_prob_diff"`` or ``"prob_diff"``.
        answers: score the ``"first"`` gold answer, or the ``"best"`` of all.
        failed: score the histories after failed calls too.

    Raises:
        SettingError: for a setting or an env that can't work.
    """

    def __init__(
        self,
        env: VectorOfText,
        scorer: Scorer,
        tools: Collection[str] = ("visit",),
        kind: GainKind = "log_prob_diff",
        answers: GoldAnswers = "first",
        failed: bool = False,
    ) -> None:
        known = _game_of(env).game.tool_names
        self._gains = [
            GainTracker(scorer, tools, kind, answers, known, failed) for _ in range(env.num_envs)
        ]
        super().__init__(env)
        self.scorer = scorer
        self.tools = tuple(tools)
        self.kind: GainKind = kind
        self.answers: GoldAnswers = answers
        self.failed = failed

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Texts, Info]:
        """Reset, and score the openings."""
        observations, infos = self.env.reset(seed=cast(Any, seed), options=options)
        self._score_openings(infos)
        return observations, infos

    def step(self, actions: Sequence[str]) -> Stepped:
        """Step, and score the histories after a call of one of the tools.

        A scorer that is lost for one sub-environment breaks that episode alone, also one
        that has just begun; its next step begins another.
        """
        return self._scored(self.env.step(actions))

    async def areset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Texts, Info]:
        """:meth:`reset` on the caller's event loop; the scorer is asked on a thread."""
        observations, infos = await areset(self.env, seed=seed, options=options)
        await on_scorers_thread(self._score_openings, infos)
        return observations, infos

    async def astep(self, actions: Sequence[str]) -> Stepped:
        """:meth:`step` on the caller's event loop; the scorer is asked on a thread."""
        return await on_scorers_thread(self._scored, await astep(self.env, actions))

    async def aclose(self) -> None:
        """``close`` on the caller's event loop."""
        await aclose(self.env)

    def _scored(self, stepped: Stepped) -> Stepped:
        observations, rewards, terminated, truncated, infos = stepped
        shown, rewards, truncated = list(observations), rewards.copy(), truncated.copy()
        played = infos.get("_turn_reward", np.zeros(self.num_envs, dtype=bool))
        for index, episode in enumerate(_game_of(self.env).episodes):
            if not played[index]:
                continue
            try:
                found = self._gains[index].after_turn(episode)
            except DrvError as error:
                infos["ending"][index] = str(episode.break_off(error).ending)
                infos["error"][index] = str(error)
                shown[index], rewards[index], truncated[index] = "", 0.0, True
                if "penalised" in infos:
                    infos["penalised"][index] = False
                continue
            if found is not None:
                infos["turn_reward"][index] = dataclasses.replace(
                    infos["turn_reward"][index], information_gain=found
                )
                if not ("penalised" in infos and infos["penalised"][index]):
                    rewards[index] += found
        for index, lost in self._score_openings(infos, shows=False):
            _game_of(self.env).episodes[index].break_off(lost)
            shown[index] = ""
            if not terminated[index]:
                truncated[index] = True
            _put(infos, "ending", index, str(Ending.BROKEN))
            _put(infos, "error", index, str(lost))
        return tuple(shown), rewards, terminated, truncated, infos

    def _score_openings(self, infos: Info, shows: bool = True) -> list[tuple[int, DrvError]]:
        """Score the openings of the episodes that have just begun.

        Args:
            infos: say which.
            shows: whether what the scorer raises is raised; nothing was played then.

        Returns:
            the sub-environments for which it was lost, and why.
        """
        lost: list[tuple[int, DrvError]] = []
        begun = infos.get("_task_id", np.zeros(self.num_envs, dtype=bool))
        for index, episode in enumerate(_game_of(self.env).episodes):
            if not begun[index] or episode.ending is not None:
                continue
            if shows:
                self._gains[index].begin(episode)
                continue
            try:
                with boundary(EngineError, "scorer"):
                    self._gains[index].begin(episode)
            except DrvError as error:
                lost.append((index, error))
        return lost


def _put(infos: Info, key: str, index: int, value: Any) -> None:
    """Set what infos say of one sub-environment."""
    count = len(infos["_task_id"])
    if key not in infos:
        infos[key] = np.full(count, None, dtype=object)
        infos[f"_{key}"] = np.zeros(count, dtype=bool)
    infos[key][index], infos[f"_{key}"][index] = value, True


class VectorFormatPenalty(VectorWrapper):
    """:class:`~drv_env.wrappers.FormatPenalty` for a vector env.

    Args:
        env: made of :class:`~drv_env.vector.DeepResearchVectorEnv`.
        penalty: λ, at least 0; 1.0 as published.

    Raises:
        SettingError: for a penalty or an env that can't work.
    """

    def __init__(self, env: VectorOfText, penalty: float = 1.0) -> None:
        self.penalty = check_penalty(penalty)
        _game_of(env)
        super().__init__(env)

    def step(self, actions: Sequence[str]) -> Stepped:
        """Step, and penalise malformed turns."""
        return self._penalised(self.env.step(actions))

    async def areset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Texts, Info]:
        """``reset`` on the caller's event loop."""
        opening: tuple[Texts, Info] = await areset(self.env, seed=seed, options=options)
        return opening

    async def astep(self, actions: Sequence[str]) -> Stepped:
        """:meth:`step` on the caller's event loop."""
        return self._penalised(await astep(self.env, actions))

    async def aclose(self) -> None:
        """``close`` on the caller's event loop."""
        await aclose(self.env)

    def _penalised(self, stepped: Stepped) -> Stepped:
        observations, rewards, terminated, truncated, infos = stepped
        rewards = rewards.copy()
        for part in (infos, infos.get("final_info", {})):
            if "verdict" not in part:
                continue
            broken = part["ending"] == str(Ending.BROKEN)
            part["penalised"] = part["_verdict"] & ~part["verdict"] & ~broken
            part["_penalised"] = part["_verdict"].copy()
            rewards[part["penalised"]] = -self.penalty
        return observations, rewards, terminated, truncated, infos


def _game_of(env: VectorOfText) -> DeepResearchVectorEnv:
    game = env.unwrapped
    if not isinstance(game, DeepResearchVectorEnv):
        raise SettingError(
            f"this wrapper needs a DeepResearchVectorEnv, as make_vec makes it, got "
            f"{type(game).__name__}"
        )
    return game
