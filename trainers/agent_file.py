"""``agent.json`` in a checkpoint's folder: how its model was trained to play.

A model that learnt the game under some prompt, sampling and tools plays best under them
again, and is measured on the questions it was measured on before.  The file holds whatever of
them is known, in four sections, each of them optional::

    {
      "rules": {"system_prompt": "", "max_turns": 8, "max_context": 1024, "max_turn_tokens": 48},
      "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "presence_penalty": 0.0,
                   "stop": []},
      "offline": {"worlds": [0, 1], "results": 1, "fields": ["url"], "evidence_words": 8},
      "questions": {"hops": [2, 3, 4], "balanced": true, "count": 192, "part": "test", "seed": 0}
    }

``worlds`` are the seeds of the invented webs it was trained in; the rest of ``offline`` are
settings of :class:`drv_env.tools.offline.OfflineTools`.  ``questions`` are those about these
webs (:mod:`trainers.world_questions`): how many facts each chains, whether there are as many of
each number, and of an evaluation how many of which part; ``seed`` decides the draws, and how an
evaluation is sampled.  Knows files and values, no models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from agents.engines.base import Sampling
from drv_env.episode import Rules
from drv_env.errors import SettingError
from drv_env.settings import at_least, checked_seed, checked_whole
from drv_env.tools.offline import OfflineTools
from drv_env.whole_files import write_text
from drv_env.worlds.recipe import WorldRecipe

NAME = "agent.json"
PARTS = ("train", "validation", "test")
"""Of a world's questions."""

_SECTIONS: dict[str, dict[str, tuple[type, ...]]] = {
    "rules": {
        "system_prompt": (str,),
        "max_turns": (int,),
        "count_forced_turn": (bool,),
        "max_context": (int,),
        "max_turn_tokens": (int,),
        "max_seconds": (int, float),
        "max_cost": (int, float),
        "max_unreadable": (int, NoneType),
        "reading": (str,),
    },
    "sampling": {
        "temperature": (int, float),
        "top_p": (int, float),
        "top_k": (int,),
        "presence_penalty": (int, float),
        "stop": (list,),
    },
    "offline": {
        "worlds": (list,),
        "results": (int,),
        "snippet_words": (int,),
        "evidence_words": (int,),
        "whole_pages": (bool,),
        "fields": (list,),
        "links": (int,),
    },
    "questions": {
        "hops": (list,),
        "balanced": (bool,),
        "count": (int,),
        "part": (str,),
        "seed": (int,),
    },
}
_ITEMS: dict[str, type] = {"stop": str, "fields": str, "worlds": int, "hops": int}

Agent = dict[str, dict[str, Any]]
"""The four sections, each there, with what is known; lists are tuples."""


def read_agent(folder: str | Path) -> Agent | None:
    """What a checkpoint says of itself; None where it has no file.

    Raises:
        SettingError: naming the file, when it can't be read or holds what can't work.
    """
    file = Path(folder) / NAME
    if not file.is_file():
        return None
    try:
        return checked_agent(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(
            f"{file} can't be used: {error}; mend it, or delete it to play by the usual settings"
        ) from None


def write_agent(folder: str | Path, agent: Mapping[str, Any]) -> None:
    """Write the file, checked.

    Raises:
        SettingError: when a value can't work.
    """
    text = json.dumps(checked_agent(agent), indent=2) + "\n"
    write_text(Path(folder) / NAME, text)


def agent_of(
    rules: Mapping[str, Any],
    sampling: Sampling,
    offline: Mapping[str, Any] | None = None,
    questions: Mapping[str, Any] | None = None,
) -> Agent:
    """What a file says of a model that plays so.

    Args:
        rules: of an episode, by name; what has no place in the file is left out, and so is None
            where it doesn't say that there is no bound.
        sampling: of its turns.
        offline: worlds and settings of offline tools, where it has those.
        questions: about the worlds, where it was asked those.
    """
    return {
        "rules": {
            name: rules[name]
            for name, kinds in _SECTIONS["rules"].items()
            if name in rules and (rules[name] is not None or NoneType in kinds)
        },
        "sampling": {name: getattr(sampling, name) for name in _SECTIONS["sampling"]},
        "offline": dict(offline or {}),
        "questions": dict(questions or {}),
    }


def checked_agent(value: Any) -> Agent:
    """The sections, all of them, once every value is known to work.

    Raises:
        SettingError: naming the first that doesn't.
    """
    _refuse_unknown("", value, _SECTIONS)
    found: Agent = {}
    for section, known in _SECTIONS.items():
        values = value.get(section, {})
        _refuse_unknown(section, values, known)
        for name, item in values.items():
            kinds = known[name]
            right = isinstance(item, kinds) and (bool in kinds or not isinstance(item, bool))
            if list in kinds:
                right = isinstance(item, list | tuple) and all(
                    type(part) is _ITEMS[name] for part in item
                )
            if not right:
                raise SettingError(f"{section}.{name} can't be {item!r:.100}")
        found[section] = {
            name: tuple(item) if isinstance(item, list) else item for name, item in values.items()
        }
    Rules(**found["rules"])
    Sampling(1, **found["sampling"])
    offline = dict(found["offline"])
    worlds = offline.pop("worlds", (0,))
    OfflineTools([WorldRecipe(seed) for seed in worlds], **offline)
    _check_questions(found["questions"])
    return found


def _check_questions(questions: Mapping[str, Any]) -> None:
    for hops in questions.get("hops", ()):
        checked_whole("questions.hops", hops, at_least(1))
    checked_whole("questions.count", questions.get("count", 1), at_least(1))
    checked_seed(questions.get("seed", 0))
    part = questions.get("part", "test")
    if part not in PARTS:
        raise SettingError(f"questions.part must be one of {', '.join(PARTS)}, got {part!r:.100}")


def _refuse_unknown(section: str, value: Any, known: Mapping[str, Any]) -> None:
    where = section or "the file"
    if not isinstance(value, Mapping):
        raise SettingError(f"{where} must be an object, not {value!r:.100}")
    for name in value:
        if name not in known:
            raise SettingError(f"{where} has {name!r}; there may be {', '.join(known)}")
