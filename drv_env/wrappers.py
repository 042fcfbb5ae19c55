"""Rewards per turn as Gymnasium wrappers: information gain, format penalty.

Each does one thing, and their order makes no difference: a malformed turn earns the
penalty alone, whichever wrapper sees it first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, SupportsFloat

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from drv_env.async_face import aclose, areset, astep, on_scorers_thread
from drv_env.episode import Ending, Episode
from drv_env.errors import DrvError
from drv_env.game import Game, Info
from drv_env.rewards.information_gain import GainKind, GainTracker, GoldAnswers, Scorer
from drv_env.settings import at_least, checked_number

Stepped = tuple[str, SupportsFloat, bool, bool, Info]
"""What a step gives: observation, reward, terminated, truncated, info."""


class InformationGainReward(gymnasium.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Add to the reward of a visit what it taught about the gold answer.

    The gain of a turn is the change of the gold answer's mean log-prob (or probability)
    since the last scored history; it is paid at the step of the call itself, and
    ``info["turn_reward"].information_gain`` has it (None where nothing was computed, for
    which the step pays 0.0).

    Args:
        env: an env made of :class:`~drv_env.env.DeepResearchEnv`.
        scorer: gives the model's belief in an answer; held by reference.
        tools: names of the tools whose calls are scored.
        kind: ``"log_prob_diff"`` or ``"prob_diff"``.
        answers: score the ``"first"`` gold answer, or the ``"best"`` of all.
        failed: score the histories after failed calls too.

    Raises:
        SettingError: for a setting that can't work.
    """

    def __init__(
        self,
        env: gymnasium.Env[str, str],
        scorer: Scorer,
        tools: Collection[str] = ("visit",),
        kind: GainKind = "log_prob_diff",
        answers: GoldAnswers = "first",
        failed: bool = False,
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            _disable_deepcopy=True,
            scorer=scorer,
            tools=tools,
            kind=kind,
            answers=answers,
            failed=failed,
        )
        game: Game = env.unwrapped.game  # type: ignore[attr-defined]
        self._gains = GainTracker(scorer, tools, kind, answers, game.tool_names, failed)
        super().__init__(env)
        self.scorer = scorer
        self.tools = tuple(tools)
        self.kind: GainKind = kind
        self.answers: GoldAnswers = answers
        self.failed = failed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Reset, and score the opening."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._gains.begin(self._episode)
        return observation, info

    def step(self, action: str) -> Stepped:
        """Step, and score the history after a call of one of the tools.

        A scorer that is lost (it raises a :class:`~drv_env.errors.DrvError`) breaks the
        episode.  In ``reset``, where nothing has been played yet, its error is raised.
        """
        return self._scored(self.env.step(action))

    async def areset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """:meth:`reset` on the caller's event loop; the scorer is asked on a thread."""
        observation, info = await areset(self.env, seed=seed, options=options)
        await on_scorers_thread(self._gains.begin, self._episode)
        return observation, info

    async def astep(self, action: str) -> Stepped:
        """:meth:`step` on the caller's event loop; the scorer is asked on a thread."""
        return await on_scorers_thread(self._scored, await astep(self.env, action))

    async def aclose(self) -> None:
        """``close`` on the caller's event loop."""
        await aclose(self.env)

    def _scored(self, stepped: Stepped) -> Stepped:
        observation, reward, terminated, truncated, info = stepped
        try:
            found = self._gains.after_turn(self._episode)
        except DrvError as error:
            ending = str(self._episode.break_off(error).ending)
            broken = {"ending": ending, "error": str(error), "penalised": False}
            return "", 0.0, False, True, {**info, **broken}
        if found is not None:
            info["turn_reward"] = dataclasses.replace(info["turn_reward"], information_gain=found)
            if not info.get("penalised", False):
                reward = float(reward) + found
        return observation, float(reward), terminated, truncated, info

    @property
    def _episode(self) -> Episode:
        episode: Episode = self.unwrapped.episode  # type: ignore[attr-defined]
        return episode


class FormatPenalty(gymnasium.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Replace the reward of a turn that is not well formed by ``-penalty``.

    Such a turn earns nothing else: neither a gain nor, as the last turn, its outcome.  The
    last turn of a broken episode keeps its 0.0.  ``info["penalised"]`` says what was done.

    Args:
        env: an env made of :class:`~drv_env.env.DeepResearchEnv`.
        penalty: λ, at least 0; 1.0 as published.

    Raises:
        SettingError: when the penalty is negative or no number.
    """

    def __init__(self, env: gymnasium.Env[str, str], penalty: float = 1.0) -> None:
        RecordConstructorArgs.__init__(self, penalty=penalty)
        self.penalty = check_penalty(penalty)
        super().__init__(env)

    def step(self, action: str) -> Stepped:
        """Step, and penalise a malformed turn."""
        return self._penalised(self.env.step(action))

    async def areset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """``reset`` on the caller's event loop."""
        opening: tuple[str, Info] = await areset(self.env, seed=seed, options=options)
        return opening

    async def astep(self, action: str) -> Stepped:
        """:meth:`step` on the caller's event loop."""
        return self._penalised(await astep(self.env, action))

    async def aclose(self) -> None:
        """``close`` on the caller's event loop."""
        await aclose(self.env)

    def _penalised(self, stepped: Stepped) -> Stepped:
        observation, reward, terminated, truncated, info = stepped
        info["penalised"] = not info["verdict"] and info["ending"] != str(Ending.BROKEN)
        if info["penalised"]:
            reward = -self.penalty
        return observation, float(reward), terminated, truncated, info


def check_penalty(penalty: float) -> float:
    """The penalty, if it can work.

    Raises:
        SettingError: when it is negative or no number.
    """
    return float(checked_number("penalty", penalty, at_least(0)))
