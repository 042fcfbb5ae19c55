"""A scripted expert that answers a world's questions through the tools.

It plays one episode, turn by turn: for each hop it searches for the entity at hand,
opens the entity's page with the relation as its goal, reads the object, and goes on
from there; then it answers.  What it learns it reads in the observations, never in the
world's facts.  It can be made to err, so that its trajectories are worth improving on.

The expert knows the turn language and the shape of the pages; it calls no tool itself.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields

from drv_env.errors import TaskDataError
from drv_env.protocol import (
    ANSWER,
    CALL,
    END_ANSWER,
    END_CALL,
    END_THINK,
    THINK,
    Action,
    Answer,
    Search,
    Visit,
    render_call,
    render_turn,
)
from drv_env.settings import between, check_fields
from drv_env.tasks import Task
from drv_env.worlds.world import World, url_of

UNKNOWN = "unknown"
"""The answer of an expert that found nothing at all."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How often an episode holds each mistake, once; each from 0 to 1, independent.

    Attributes:
        stop_early: after an intermediate hop, answers the object of that hop.
            One-hop questions have none.
        wrong_entity: at one hop, opens the page of another entity of the same kind (a
            look-alike or another search result where there is one) and believes it.
        duplicate: makes one of its calls twice.
        malformed: writes one turn without its last closing tag, then writes it again.

    Raises:
        SettingError: when a value is out of range.
    """

    stop_early: float = 0.3
    wrong_entity: float = 0.1
    duplicate: float = 0.1
    malformed: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, **{item.name: between(0, 1) for item in fields(self)})


NO_NOISE = Noise(0.0, 0.0, 0.0, 0.0)
"""Never errs: solves every question."""


def compact_turn(thought: str, action: Action) -> str:
    """Nothing between the tags and what they hold.

    Example:
        >>> compact_turn("", Answer("Tavelin"))
        '<think></think><answer>Tavelin</answer>'
    """
    if isinstance(action, Answer):
        block = f"{ANSWER}{action.text}{END_ANSWER}"
    else:
        block = f"{CALL}{render_call(action)}{END_CALL}"
    return f"{THINK}{thought}{END_THINK}{block}"


@dataclass(frozen=True, slots=True)
class TurnStyle:
    """How the expert writes.

    Attributes:
        render: the text of a turn from its thought (may be empty) and action.
        bare: share of the final turns with an empty thought, 0 to 1: there the answer
            follows at once, as where an answer is probed for.
    """

    render: Callable[[str, Action], str] = render_turn
    bare: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self, bare=between(0, 1))


LINES = TurnStyle()
COMPACT = TurnStyle(compact_turn)


class Expert:
    """Plays one episode.

    Args:
        task: a question made by :func:`drv_env.worlds.questions.questions`.
        world: the world it is asked in; consulted for the wrong entity's name only.
        rng: decides the mistakes and the bare thoughts; the same state gives the same
            turns.
        noise: how often it errs.
        style: how it writes.

    Raises:
        TaskDataError: when the task's metadata lacks ``start`` or ``path``.

    Example:
        >>> from drv_env.worlds import WorldRecipe, questions
        >>> world = WorldRecipe(0).build()
        >>> task = questions(world)[0]
        >>> expert = Expert(task, world, random.Random(0), NO_NOISE, COMPACT)
        >>> expert.act(task.question).startswith("<think>Next: ")
        True
    """

    def __init__(
        self,
        task: Task,
        world: World,
        rng: random.Random,
        noise: Noise | None = None,
        style: TurnStyle = LINES,
    ) -> None:
        if "start" not in task.metadata or "path" not in task.metadata:
            raise TaskDataError(
                f"the expert needs a task with 'start' and 'path' in its metadata, as "
                f"questions() makes them; got {dict(task.metadata)!r:.200}"
            )
        self._start: str = task.metadata["start"]
        self._path: list[str] = list(task.metadata["path"])
        self._world = world
        self._style = style
        self._plan(rng, noise or Noise())
        self._game = self._play()
        self._begun = False

    def act(self, observation: str) -> str:
        """The next turn, whole.

        Args:
            observation: what came back for the last turn, wrapped or not; at the first
                call anything (the question, say).

        Raises:
            RuntimeError: when it has answered already.
        """
        try:
            if self._begun:
                return self._game.send(observation)
            self._begun = True
            return next(self._game)
        except StopIteration:
            raise RuntimeError("the expert has answered; make another for a new episode") from None

    def _plan(self, rng: random.Random, noise: Noise) -> None:
        """Draw every mistake beforehand, with a fixed number of draws."""
        hops = len(self._path)
        draw = [rng.random() for _ in range(5)]
        self._last_hop = hops - 1
        where = rng.random()
        if draw[0] < noise.stop_early and hops > 1:
            self._last_hop = int(where * (hops - 1))
        played = self._last_hop + 1
        places = [rng.random() for _ in range(3)]
        self._wrong_hop = int(places[0] * played) if draw[1] < noise.wrong_entity else None
        self._twice = int(places[1] * 2 * played) if draw[2] < noise.duplicate else None
        self._broken = int(places[2] * (2 * played + 1)) if draw[3] < noise.malformed else None
        self._bare = draw[4] < self._style.bare
        self._wrong_draw = rng.random()
        self._calls = self._turns = 0

    def _play(self) -> Generator[str, str, None]:
        entity, learnt = self._start, ""
        for hop, relation in enumerate(self._path[: self._last_hop + 1]):
            thought = f"{learnt} Next: {entity}'s {relation}.".lstrip()
            seen = yield from self._call(thought, Search((entity,)))
            url = url_of(entity)
            if hop == self._wrong_hop:
                url = self._other_url(entity, seen)
            thought = f"{entity}'s {relation}."
            seen = yield from self._call(thought, Visit((url,), relation))
            found = re.search(rf"\bThe {re.escape(relation)} is (\w+)\.", seen)
            if found is None:  # the tool failed: give up with what is known
                answer = UNKNOWN if hop == 0 else entity
                yield from self._say("Nothing found.", Answer(answer))
                return
            learnt = f"{entity}'s {relation} is {found[1]}."
            entity = found[1]
        yield from self._say("" if self._bare else learnt, Answer(entity))

    def _call(self, thought: str, action: Search | Visit) -> Generator[str, str, str]:
        """Make a call, perhaps twice; everything that came back."""
        number, self._calls = self._calls, self._calls + 1
        seen = yield from self._say(thought, action)
        if number == self._twice:
            seen += "\n" + (yield from self._say(thought, action))
        return seen

    def _say(self, thought: str, action: Action) -> Generator[str, str, str]:
        """Write one turn, perhaps first malformed; what came back."""
        number, self._turns = self._turns, self._turns + 1
        turn = self._style.render(thought, action)
        if number == self._broken:
            closing = END_ANSWER if isinstance(action, Answer) else END_CALL
            yield turn.removesuffix(closing)
        return (yield turn)

    def _other_url(self, entity: str, seen: str) -> str:
        """The url of a wrong page of the same kind: a search result where there is one."""
        kinds = self._world.kinds
        others = [n for n, kind in kinds.items() if kind == kinds.get(entity) and n != entity]
        if not others:
            return url_of(entity)
        urls = {url_of(name) for name in others}
        for url in re.findall(r'"url": "([^"]*)"', seen):
            if url in urls:
                return str(url)
        alike = [name for name in others if self._world.lookalikes.get(name) == entity]
        others = alike or others
        return url_of(others[int(self._wrong_draw * len(others))])
