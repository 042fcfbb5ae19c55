"""One question to an agent: what it thinks, calls and finds as it happens, and its sources.

Whoever shows it (a terminal, a page in a browser) listens to :data:`Event` records; nothing
here knows how they are shown.  A question has no gold answer, so nothing is scored: the
trajectory's outcome is None.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from agents.engines.base import ChatEngine, Engine, Sampling
from agents.rollout import EpisodeId, RolloutSettings, stream
from drv_env.episode import Ending, Episode, ObservationKind
from drv_env.game import Game
from drv_env.play import Played
from drv_env.protocol import Answer, ReadingRule, Search, ToolCall, Visit, read_turn
from drv_env.tasks import Task, TaskLike
from drv_env.tools.base import ToolResult
from drv_env.urls import canonical_url
from replay.observations import Found, Seen, read_search, read_visit
from replay.recorded import NO_GOLD, rule_of
from replay.template import ChatTemplate
from replay.trajectory import Trajectory, TurnRecord

ONCE = RolloutSettings(retries=0)
"""A broken episode is not tried again, so that its events don't come twice."""


_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s<>\"]+", re.IGNORECASE)
_AFTER_URL = ".,;:!?)]}'*`…。，"


@dataclass(frozen=True, slots=True)
class Thought:
    """What the agent thinks, before it acts; numbers of turns are from 1."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class Unread:
    """What the agent wrote where neither a call nor an answer can be read; a :class:`Remark`
    follows, unless the episode ends with it."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call that the agent makes; a :class:`Finding` or a :class:`Remark` follows."""

    turn: int
    action: Search | Visit | ToolCall

    @property
    def tool(self) -> str:
        """The tool's name."""
        match self.action:
            case Search():
                return "search"
            case Visit():
                return "visit"
            case ToolCall(name, _):
                return name


@dataclass(frozen=True, slots=True)
class Finding:
    """What a call brought.

    Attributes:
        turn: that made the call.
        tool: its name.
        status: ``ok``, ``empty``, ``refused`` or ``failed``.
        text: all that the agent sees.
        hits: the results of a search.
        pages: what a visit took from its pages.
        seconds: it took.
        cost: in US dollars.
    """

    turn: int
    tool: str
    status: str
    text: str
    hits: tuple[Found, ...] = ()
    pages: tuple[Seen, ...] = ()
    seconds: float = 0.0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Remark:
    """What the environment says to the agent.

    Attributes:
        turn: that it answers.
        kind: ``malformed``, ``refused``, or ``budget``: the answer is asked for.
        text: in words.
    """

    turn: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The final answer; ``ending`` says whether it came freely or was asked for."""

    turn: int
    text: str
    ending: Ending


Event = Thought | Unread | Called | Finding | Remark | Answered


@dataclass(frozen=True, slots=True)
class Source:
    """A page that the agent opened and got something from.

    Attributes:
        url: as it was opened.
        title: where a search result had one, else "".
        named: whether the answer's turn names it.
    """

    url: str
    title: str
    named: bool


def question_task(question: str, world: str | None = None) -> Task:
    """A task whose gold answer nobody knows.

    Raises:
        TaskDataError: for a blank question.
    """
    return Task(question, (NO_GOLD,), world=world)


async def research(
    game: Game,
    engine: Engine | ChatEngine,
    template: ChatTemplate | None,
    task: TaskLike,
    sampling: Sampling,
    settings: RolloutSettings = ONCE,
    *,
    on_event: Callable[[Event], None] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Trajectory:
    """Play one episode and tell of it as it happens.

    Args:
        game: tools and rules; its outcome is not asked.
        engine: as for :func:`agents.rollout.stream`.
        template: likewise.
        task: the question; see :func:`question_task`.
        sampling: of every turn.
        settings: deadlines, retries; a retry's events follow those of the broken attempt.
        on_event: told of each event in order; must not wait.
        provenance: goes with the trajectory.

    Returns:
        The trajectory, which may be broken; its outcome is None.

    Raises:
        SettingError: when engine, template and rules don't fit each other.
    """
    tell = on_event or (lambda event: None)
    game = copy.copy(game)
    game.outcome = _unscored

    def on_sampled(key: EpisodeId, episode: Episode, text: str) -> None:
        reading = read_turn(text, episode.rules.reading)
        number = len(episode.turns) + 1
        if reading.is_unread:
            tell(Unread(number, text))
        elif reading.thought:
            tell(Thought(number, reading.thought))
        carried_out = episode.forced is None  # after the request for the answer no call is
        if carried_out and reading.action is not None and not isinstance(reading.action, Answer):
            tell(Called(number, reading.action))

    def on_turn(key: EpisodeId, episode: Episode, played: Played) -> None:
        event = _event(episode)
        if event is not None:
            tell(event)

    async with aclosing(
        stream(
            game,
            engine,
            template,
            [task],
            sampling,
            replace(settings, group_size=1),
            provenance=provenance,
            on_sampled=on_sampled,
            on_turn=on_turn,
        )
    ) as rollouts:
        async for item in rollouts:
            rewards = tuple(replace(reward, outcome=None) for reward in item.trajectory.rewards)
            return replace(item.trajectory, rewards=rewards)
    raise AssertionError("a rollout of one task gives one trajectory")


def sources(trajectory: Trajectory) -> list[Source]:
    """The pages that the agent opened and got something from, each once.

    Those that the answer's turn names come first, otherwise the order is that of opening.
    What a page's text claims to be another page is none: only urls that were asked for
    count.
    """
    titles: dict[str, str] = {}
    opened: dict[str, str] = {}
    rule = rule_of(trajectory)
    for turn in trajectory.turns:
        if turn.observation is None or turn.observation_kind != ObservationKind.RESULT:
            continue
        for hit in _hits(turn.tool, turn.observation):
            if hit.title:
                titles.setdefault(canonical_url(hit.url), hit.title)
        if turn.tool == "visit" and turn.tool_status == "ok":
            for url in _read_pages(turn, rule):
                opened.setdefault(canonical_url(url), url)
    said = trajectory.turns[-1].text if trajectory.answer is not None else ""
    found = [Source(url, titles.get(page, ""), _names(said, url)) for page, url in opened.items()]
    return sorted(found, key=lambda source: not source.named)


def _event(episode: Episode) -> Event | None:
    """What came of the last turn."""
    turn = episode.turns[-1]
    if turn.observation is None and turn.call is not None and turn.result is not None:
        return _finding(turn.number, turn.call.name, turn.result.text, turn.result)  # it broke
    if turn.observation is None:
        if episode.answer is None or episode.ending in (None, Ending.BROKEN):
            return None
        return Answered(turn.number, episode.answer, episode.ending)
    text, kind = turn.observation.text, turn.observation.kind
    if kind is not ObservationKind.RESULT or turn.call is None or turn.result is None:
        return Remark(turn.number, str(kind), text)
    return _finding(turn.number, turn.call.name, text, turn.result)


def _finding(turn: int, tool: str, text: str, result: ToolResult) -> Finding:
    return Finding(
        turn,
        tool,
        str(result.status),
        text,
        tuple(_hits(tool, text)),
        tuple(read_visit(text) or ()) if tool == "visit" else (),
        result.latency,
        result.cost,
    )


def _hits(tool: str | None, text: str) -> list[Found]:
    return (read_search(text) or []) if tool == "search" else []


def _read_pages(turn: TurnRecord, rule: ReadingRule) -> list[str]:
    action = read_turn(turn.text, rule).action
    asked = set(map(canonical_url, action.urls)) if isinstance(action, Visit) else set()
    pages = read_visit(turn.observation or "") or []
    return [page.url for page in pages if page.texts and canonical_url(page.url) in asked]


def _names(text: str, url: str) -> bool:
    """Whether a text names this very url, in any spelling, and not one that begins with it."""
    pattern = re.escape(url.rstrip("/")) + r"/?(?![\w%-]|[./?#=&]\w)"
    if re.search(pattern, text) is not None:
        return True
    named = (match[0].rstrip(_AFTER_URL) for match in _URL.finditer(text))
    return canonical_url(url) in map(canonical_url, named)


def _unscored(answer: str, task: Task) -> float:
    return 0.0
