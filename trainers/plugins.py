"""What plays, by name: tools, outcomes and scorers, the package's own and what users plug in.

Names are looked up as :mod:`trainers.registry` says, for every command and for the YAML alike.
"""

from __future__ import annotations

from typing import Any

from agents.scorers import EngineScorer, TransformersScorer
from drv_env.errors import SettingError
from drv_env.play import Outcome
from drv_env.rewards.information_gain import Scorer
from drv_env.rewards.outcome import exact_match, exact_match_cjk, token_f1, token_f1_cjk
from drv_env.tools.base import Tools
from drv_env.tools.layers import Toolbox, UserTool
from replay.model_folders import model_folder
from replay.template import ChatTemplate
from trainers.registry import Registry, made, takes

TOOLS: Registry[Any] = Registry("kind of tools", "drv_env.tools")
"""What ``--tools``, ``--own-tools``, ``tools.kind`` and ``tools.own`` may name.

:class:`drv_env.tools.base.Tools`; a :class:`drv_env.tools.layers.UserTool`, or several; or a class
or function without arguments that makes them.
"""

OUTCOMES: Registry[Any] = Registry("outcome", "drv_env.outcomes")
"""What ``--outcome`` and ``outcome`` may name.

A function of an answer and a task, sync or async, that gives a number in [0, 1]; or a class or
function without arguments that makes one.
"""

SCORERS: Registry[Any] = Registry("scorer", "drv_env.scorers")
"""What ``--scorer`` and ``rl.gain_by`` may name.

Anything with ``score(messages, answer, transcript=None)``, or a class or function without
arguments that makes one.
"""


for _name, _outcome in {
    "exact": exact_match,
    "f1": token_f1,
    "exact-cjk": exact_match_cjk,
    "f1-cjk": token_f1_cjk,
}.items():
    OUTCOMES.register(_name, ours=True)(_outcome)


@OUTCOMES.register("judge", ours=True)
def judge() -> Outcome:
    """The judge that the environment names; its owner closes it.

    Raises:
        SettingError: when its endpoint or model is not set.
    """
    from drv_env.rewards.judge import Judge

    return Judge.from_env()


@OUTCOMES.register("key-facts", ours=True)
def key_facts() -> Outcome:
    """The share of a task's key facts, by words."""
    from drv_env.rewards.key_facts import KeyFacts

    return KeyFacts()


def outcome_of(name: str) -> Outcome:
    """The outcome of a name.

    Raises:
        SettingError: when there is none, or what it names is none.
    """
    found: Outcome = made(
        OUTCOMES[name],
        lambda thing: callable(thing) and takes(thing, 2),
        f"the outcome {name}",
        "an outcome is called with an answer and a task, and gives a number from 0 to 1",
    )
    return found


def scorer_of(name: str) -> Scorer:
    """The scorer of a name.

    Raises:
        SettingError: when there is none, or what it names is none.
    """
    found: Scorer = made(
        SCORERS[name],
        lambda thing: callable(getattr(thing, "score", None)),
        f"the scorer {name}",
        "a scorer has a method score(messages, answer, transcript=None)",
    )
    return found


ENGINE = "engine"
"""In place of a scorer's name: the model that plays, by its engine."""


def is_model(name: str) -> bool:
    """Whether a scorer's name is the folder of a model, or a fetched one of the Hub."""
    return (model_folder(name) / "config.json").is_file()


def make_scorer(name: str, engine: Any, template: ChatTemplate | None) -> Scorer:
    """The scorer of a name, of a model's folder, or of the engine that plays.

    Args:
        name: :data:`ENGINE`, a folder, or what :func:`scorer_of` takes.
        engine: that plays.
        template: its model's, where it is known.

    Raises:
        SettingError: when there is no such scorer, or the engine has no log-probs.
    """
    if name == ENGINE:
        if template is None or not hasattr(engine, "score"):
            raise SettingError(
                "the scorer engine needs an engine that gives log-probs: transformers, vllm or "
                "openai-ids; or name the folder of a model"
            )
        return EngineScorer(engine, template)
    if is_model(name):
        return TransformersScorer(name)
    return scorer_of(name)


def tools_of(name: str) -> Tools:
    """The tools of a name: whole ones, or a user's own alone.

    Raises:
        SettingError: when there are none, or what it names is none.
    """
    found = _tools(name)
    return found if isinstance(found, Tools) else Toolbox(None, own_tools(found))


def user_tools_of(name: str) -> tuple[UserTool, ...]:
    """A user's own tools of a name, to stand beside others.

    Raises:
        SettingError: when there are none, or it names tools that stand alone.
    """
    found = _tools(name)
    if isinstance(found, Tools):
        raise SettingError(
            f"{name} are whole tools, which stand alone; what stands beside others is made by "
            "drv_env.tools.layers.tool(schema, function)"
        )
    return own_tools(found)


def own_tools(found: Any) -> tuple[UserTool, ...]:
    """One tool or several, as several."""
    return (found,) if isinstance(found, UserTool) else tuple(found)


def _tools(name: str) -> Any:
    def fits(thing: Any) -> bool:
        several = isinstance(thing, list | tuple) and len(thing) > 0
        if several and all(isinstance(item, UserTool) for item in thing):
            return True
        return isinstance(thing, Tools | UserTool)

    wanted = (
        "a tool is what drv_env.tools.layers.tool(schema, function) gives, and whole tools have "
        "schemas, clock, call and close"
    )
    return made(TOOLS[name], fits, f"the tools {name}", wanted)
