"""Our episodes as an environment of TRL's GRPOTrainer (``environment_factory``).

TRL plays: it samples, reads the model's tool calls with the tokenizer's response template,
calls our methods of the same names, and lets the model go on until a turn has no call.
Each call is handed to the :class:`~drv_env.episode.Episode` as a turn, so budgets, refusals
and failures are those of :class:`~drv_env.env.DeepResearchEnv`; the turn without a call is
the answer, scored by :func:`outcome_reward`.  What TRL does not show us:

* the turn around a call.  It is rendered anew, with an empty thought, so a tool turn's
  ``well_formed`` says nothing; two calls in one message are two turns;
* a turn that it could not read.  It ends the rollout, and counts as no answer;
* tokens.  ``Rules.max_context`` sees calls and observations only, not the thoughts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents.adapters import escaped, require
from drv_env.chat_turns import turn_of
from drv_env.episode import Ending, Episode
from drv_env.errors import SettingError
from drv_env.game import Game
from drv_env.play import Played
from drv_env.protocol import Answer, ToolCall, read_turn, render_turn
from drv_env.tools.base import ToolSchema

TESTED = "1.16.0"
OVER = "The episode is over; no more tools can be called. Stop here."

_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict,
}


class TrlEpisode:
    """What TRL holds for one rollout: the game's tools are methods of its subclasses.

    Attributes:
        episode: the episode being played, or the one just over; None before any.
        outcome: the outcome reward, or None where there is none (yet).
    """

    _game: Game
    episode: Episode | None = None
    outcome: float | None = None

    @property
    def ending(self) -> Ending | None:
        """How the rollout ended; a rollout that just stops gave no answer."""
        if self.episode is None:
            return None
        return self.episode.ending or Ending.NO_ANSWER

    def reset(self, task: int, **columns: Any) -> None:
        """Begin the episode of a row made by :func:`dataset_rows`."""
        self.episode = self._game.episode(self._game.tasks[task])
        self.outcome = None

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if self.episode is None or self.episode.ending is not None:
            return OVER
        turn = render_turn("", ToolCall(name, dict(arguments)))
        (played,) = self._game.play([(self.episode, turn)])
        self._keep(played)
        return OVER if played.observation is None else escaped(played.observation)

    def _keep(self, played: Played) -> None:
        self.outcome = played.reward.outcome

    def _last_turn(self, completion: Sequence[Mapping[str, Any]]) -> str | None:
        """The turn that ends the episode, where the rollout has one."""
        if self.episode is None or self.episode.ending is not None or not completion:
            return None
        if completion[-1].get("role") != "assistant":
            return None
        text = turn_of(completion[-1])
        reading = read_turn(text, self.episode.rules.reading)
        closes = self.episode.forced is not None or isinstance(reading.action, Answer)
        return text if closes else None


def environment_factory(game: Game) -> type[TrlEpisode]:
    """The class to pass as ``GRPOTrainer(environment_factory=…)``.

    Args:
        game: tasks, tools, outcome and rules; held by reference and shared by all rollouts.

    Raises:
        SettingError: when TRL is missing or too old or too new, or a tool can't be a method.
    """
    require("trl", TESTED, "2")
    methods = {tool.name: _method(tool) for tool in game.rules.tools}
    return type("DeepResearch", (TrlEpisode,), {"_game": game, **methods})


def dataset_rows(game: Game) -> list[dict[str, Any]]:
    """One row a task, for ``datasets.Dataset.from_list``: ``prompt`` and ``task``."""
    return [
        {"prompt": game.episode(task).opening, "task": number}
        for number, task in enumerate(game.tasks)
    ]


def outcome_reward(
    *,
    environments: Sequence[Any],
    completions: Sequence[Sequence[Mapping[str, Any]]],
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """A reward function of GRPOTrainer: the outcome of every rollout.

    A broken episode (tools down, judge lost) has None: TRL leaves it out of its group's
    mean and deviation and gives it no advantage.  So has a rollout of another environment.
    """
    last: dict[Game, list[tuple[TrlEpisode, Episode, str]]] = {}
    for environment, completion in zip(environments, completions, strict=True):
        if isinstance(environment, TrlEpisode) and environment.episode is not None:
            turn = environment._last_turn(completion)
            if turn is not None:
                found = (environment, environment.episode, turn)
                last.setdefault(environment._game, []).append(found)
    for game, turns in last.items():
        results = game.play([(episode, turn) for _, episode, turn in turns])
        for (environment, _, _), played in zip(turns, results, strict=True):
            environment._keep(played)
    rewards: list[float | None] = []
    for environment in environments:
        ending = environment.ending if isinstance(environment, TrlEpisode) else None
        given = ending is not None and ending is not Ending.BROKEN
        rewards.append((environment.outcome or 0.0) if given else None)
        if log_metric is not None and ending is not None:
            log_metric("episodes/answered", float(ending is Ending.ANSWERED))
            log_metric("episodes/broken", float(ending is Ending.BROKEN))
    return rewards


def _method(tool: ToolSchema) -> Callable[..., str]:
    """A method with the signature and docstring from which TRL makes the tool's schema."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    for name in (tool.name, *properties):
        if not name.isidentifier() or name.startswith("_"):
            raise SettingError(f"TRL's tools are methods: {name!r} can't be a name in one")
    if hasattr(TrlEpisode, tool.name) or tool.name == "get_reward":
        raise SettingError(f"a tool named {tool.name!r} can't be offered to TRL; rename it")

    def method(self: TrlEpisode, **arguments: Any) -> str:
        return self._call(tool.name, arguments)

    required = tool.parameters.get("required", ())
    kinds = {name: _annotation(schema) for name, schema in properties.items()}
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)] + [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=kind,
            default=inspect.Parameter.empty if name in required else None,
        )
        for name, kind in kinds.items()
    ]
    about = [
        f"    {name}: {_line(schema.get('description', name))}"
        for name, schema in properties.items()
    ]
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = "\n".join([_line(tool.description), "", "Args:", *about])
    method.__annotations__ = {**kinds, "return": str}
    method.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return method


def _annotation(schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    if kind == "array":
        return list[_annotation(schema.get("items", {}))]  # type: ignore[misc]
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any


def _line(text: str) -> str:
    return " ".join(text.split())
