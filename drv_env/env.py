"""The Gymnasium face of one episode at a time: text in, text out."""

from __future__ import annotations

from typing import Any

import gymnasium

from drv_env.context import ContextCounter
from drv_env.episode import Episode, Rules
from drv_env.errors import SettingError
from drv_env.game import (
    Game,
    Info,
    checked_options,
    is_terminated,
    is_truncated,
    observation_text,
    opening_info,
    step_reward,
    turn_info,
)
from drv_env.play import Outcome, Played
from drv_env.render import conversation, show_new, show_opening
from drv_env.rewards.outcome import exact_match
from drv_env.settings import checked_seed
from drv_env.spaces import TextSpace
from drv_env.task_files import TaskSource
from drv_env.tools.base import Clock, Tools
from drv_env.tools.closing import close_tools, close_tools_now


class DeepResearchEnv(gymnasium.Env[str, str]):
    """Answer a question over many turns of searching and reading.

    **Action space**: :class:`~drv_env.spaces.TextSpace`, one whole assistant turn:
    ``<think>…</think>`` and one ``<tool_call>`` or ``<answer>``.

    **Observation space**: :class:`~drv_env.spaces.TextSpace`. ``reset`` gives the question;
    ``step`` the observation message (inside ``<tool_response>``), or "" at the end.

    **Reward**: the outcome in [0, 1] on the last turn, 0.0 on the others.  The wrappers in
    :mod:`drv_env.wrappers` add information gain and the format penalty.

    **Ending**: ``terminated`` when the agent answers of its own accord; ``truncated`` when
    a budget forced the answer, when it gave none, or when the episode broke (tools down,
    judge lost; reward 0.0, ``info["ending"] == "broken"``).  ``step`` never raises because
    of a tool.

    **Info**: see ``docs/environment.md``.

    Args:
        tasks: questions, each a :class:`~drv_env.tasks.Task`, a mapping with ``question``
            and ``answer``, or a ``(question, answer)`` pair; or the path of a file of them
            (:func:`drv_env.task_files.read_tasks`).
        tools: what the agent can use; held by reference, closed by :meth:`close`.  With neither
            tasks nor tools, both are those of an embedded world.
        outcome: scores a final answer against its task in [0, 1]; may be async.  One that
            has a ``close``, as a judge has, is closed with the tools.
        rules: what an episode allows; 200 turns and the tools' own schemas by default.
        counter: counts context tokens, for ``rules.max_context``.
        clock: for ``rules.max_seconds``; the tools' clock by default.
        tool_timeout: seconds after which a call has failed.
        outcome_timeout: seconds after which an async outcome is lost, and the episode broken.
        render_mode: ``"ansi"``, ``"human"`` or None.

    Raises:
        SettingError: for a setting that can't work.
        TaskDataError: for a task that is none.

    Example:
        >>> import gymnasium, drv_env
        >>> from drv_env.testing import FakeTools
        >>> env = gymnasium.make(
        ...     drv_env.ENV_ID, tasks=[("Capital of France?", "Paris")], tools=FakeTools()
        ... )
        >>> env.reset(seed=0)[0]
        'Capital of France?'
        >>> env.step("<think>Known.</think><answer>Paris</answer>")[:4]
        ('', 1.0, True, False)
    """

    metadata = {"render_modes": ["ansi", "human"], "render_fps": 1}  # noqa: RUF012 - as Gymnasium has it

    def __init__(
        self,
        tasks: TaskSource | None = None,
        tools: Tools | None = None,
        *,
        outcome: Outcome = exact_match,
        rules: Rules | None = None,
        counter: ContextCounter | None = None,
        clock: Clock | None = None,
        tool_timeout: float = 60.0,
        outcome_timeout: float = 300.0,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            modes = self.metadata["render_modes"]
            raise SettingError(f"render_mode must be None or one of {modes}, got {render_mode!r}")
        self.render_mode = render_mode
        self.game = Game(
            tasks,
            tools,
            outcome=outcome,
            rules=rules,
            counter=counter,
            clock=clock,
            tool_timeout=tool_timeout,
            outcome_timeout=outcome_timeout,
        )
        self.action_space = TextSpace()
        self.observation_space = TextSpace()
        self._episode: Episode | None = None

    @property
    def episode(self) -> Episode:
        """The episode being played.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("call reset() first")
        return self._episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Begin an episode.

        Args:
            seed: seeds the choice of tasks.
            options: ``{"task": task}`` sets the task; it need not be among ``tasks``.

        Returns:
            The question, and info with ``task_id`` and the opening ``messages``.

        Raises:
            SettingError: for an option of another name, a seed that is none, or a question that
                the rules leave no room for.
            TaskDataError: for a task that is none.
        """
        seed = None if seed is None else checked_seed(seed)
        task = self.game.task_of(checked_options(options, ("task",)))
        super().reset(seed=seed)
        if task is None:
            task = self.game.tasks[int(self.np_random.integers(len(self.game.tasks)))]
        self._episode = self.game.episode(task)
        if self.render_mode == "human":
            show_opening(self._episode)
        return task.question, opening_info(self._episode)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take one assistant turn.

        Raises:
            TypeError: when ``action`` is not a string.
            gymnasium.error.ResetNeeded: before reset, and after the episode's end.
        """
        episode = self._ready(action)
        (played,) = self.game.play([(episode, action)])
        return self._stepped(episode, played)

    async def areset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """:meth:`reset` for callers with an event loop of their own."""
        return self.reset(seed=seed, options=options)

    async def astep(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """:meth:`step` on the caller's event loop, which stays free meanwhile.

        Cancelling it cancels the tool call; the episode then waits for a result that never
        comes, and must be reset.

        Raises:
            TypeError: when ``action`` is not a string.
            gymnasium.error.ResetNeeded: before reset, and after the episode's end.
        """
        episode = self._ready(action)
        return self._stepped(episode, await self.game.play_one(episode, action))

    async def aclose(self) -> None:
        """:meth:`close` on the caller's event loop; for whoever used :meth:`astep`."""
        await close_tools(self.game.tools, self.game.outcome)

    def _ready(self, action: str) -> Episode:
        if not isinstance(action, str):
            raise TypeError(f"an action is a turn of text, got {type(action).__name__}")
        episode = self.episode
        if episode.ending is not None:
            raise gymnasium.error.ResetNeeded(f"the episode is over ({episode.ending})")
        return episode

    def _stepped(self, episode: Episode, played: Played) -> tuple[str, float, bool, bool, Info]:
        if self.render_mode == "human":
            show_new(episode, played)
        return (
            observation_text(played),
            step_reward(played),
            is_terminated(episode),
            is_truncated(episode),
            turn_info(episode, played),
        )

    def render(self) -> str | None:  # type: ignore[override]
        """The conversation so far, in render mode ``"ansi"``.

        In render mode ``"human"`` every reset and step prints what is new, and this gives
        None.
        """
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs a render_mode, given to make()")
        return conversation(self.episode) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Close the tools, and an outcome that has a ``close``; may be called twice."""
        close_tools_now(self.game.tools, self.game.outcome)

    def __getstate__(self) -> dict[str, Any]:
        if self._episode is not None and self._episode.waiting:
            raise RuntimeError("the env can't be pickled while a step is under way")
        return self.__dict__
