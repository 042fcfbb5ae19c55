"""An engine whose turns are decided beforehand, for tests about what is done with them.

What a small model samples hangs on last digits, and so on the processor.  Here a script
writes the turns; log-probs, scores and weights are those of the real engine and its model.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from agents.engines import transformers
from agents.engines.base import Completion, Ids, Sampling
from agents.engines.transformers import TransformersEngine
from drv_env.protocol import Answer, Search, Visit, render_turn
from drv_env.tasks import Task
from drv_env.worlds.world import World, url_of
from replay.template import ChatTemplate

Script = Callable[[str, int], str]
"""From the conversation so far and the request's number to the next turn.  The number is the
request's seed, or where it has none, how many requests came before it."""

_QUESTION = re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.DOTALL)
_WRONG = 0.25


class DecidedEngine(TransformersEngine):
    """See the module's text.

    Args:
        model: as for the real engine, like ``settings``.
        script: writes the turns.
        template: encodes them.

    Attributes:
        samplings: how each turn was to be sampled.
    """

    def __init__(
        self, model: Any, *, script: Script, template: ChatTemplate, **settings: Any
    ) -> None:
        self._script, self._template = script, template
        self.samplings: list[Sampling] = []
        super().__init__(model, **settings)

    async def generate(self, ids: Ids, sampling: Sampling) -> Completion:
        number = len(self.samplings) if sampling.seed is None else sampling.seed
        self.samplings.append(sampling)
        turn = self._script(self._template.pieces.decode(np.asarray(ids)), number)
        written = np.asarray(self._template.encode_turn(turn), np.int32)[: sampling.max_tokens]
        whole = np.concatenate([np.asarray(ids, np.int32), written])
        version = self.weight_version
        (log_probs,) = await self.score(whole, [(len(ids), len(whole))])
        finish = "stop" if int(written[-1]) == self._template.end_of_turn else "length"
        return Completion(written, log_probs, finish, version)  # type: ignore[arg-type]


def right_and_wrong(world: World, tasks: Sequence[Task]) -> Script:
    """Plays the questions of a world; one turn in four answers wrongly there and then.

    Which ones follows from the request's number, so that the episodes of a group end
    differently, and the same ones do wherever they are played.
    """
    known = {task.question: task for task in tasks}

    def script(seen: str, number: int) -> str:
        found = _QUESTION.search(seen)
        assert found is not None
        task = known[found[1]]
        path = list(task.metadata["path"])
        met = world.follow(task.metadata["start"], path)
        hop, opening = divmod(seen.count("<|im_start|>assistant\n") - 1, 2)
        if random.Random(number).random() < _WRONG:
            return render_turn("", Answer(met[0]))
        if hop == len(path):
            return render_turn("", Answer(met[-1]))
        if opening:
            return render_turn("", Visit((url_of(met[hop]),), path[hop]))
        return render_turn("", Search((met[hop],)))

    return script


def play_decided(monkeypatch: pytest.MonkeyPatch, script: Script, template: ChatTemplate) -> None:
    """Have the commands' own Transformers engine play the script."""
    decided = partial(DecidedEngine, script=script, template=template)
    monkeypatch.setattr(transformers, "TransformersEngine", decided)
