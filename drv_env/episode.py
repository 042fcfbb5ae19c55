"""One research episode as a state machine without input or output.

The rules, all of them:

* An episode opens with the system prompt and the question.  Then turns are taken with
  :meth:`Episode.take`, one at a time, until it returns :class:`Closed`.
* A turn that calls a tool gives a :class:`~drv_env.tools.base.Call`; the caller runs it
  and hands the result to :meth:`Episode.give`, which returns the observation.  Any
  other turn that does not close the episode gives its observation at once.
* Every turn before the final answer is a tool turn, malformed ones included, and costs
  one of ``max_turns``.  The last of them is not carried out: the request for the answer
  takes its output's place.
* When a budget (turns, context, seconds, cost, unreadable turns in a row) is reached, or an
  observation would not fit into the context, the request for the answer takes the
  observation's place.  One further turn follows and closes the episode, whatever it holds.
* Before each turn that may still call a tool, the context has room for that turn, the
  request for the answer, and the answer's turn.
* :meth:`Episode.cut_short` does the same at once as a budget does that is reached.
* ``max_failures`` failed calls in a row break the episode; so does
  :meth:`Episode.break_off`, for whatever the caller lost (a judge, an engine).
* Everything that affects a transition stands in this file.  It doesn't know how tools
  work, what a turn earns, or who plays; clocks and token counters are passed in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from drv_env import prompts
from drv_env.call_keys import call_key
from drv_env.context import ContextCounter, Message
from drv_env.errors import DrvError, SettingError, ToolError
from drv_env.protocol import (
    Action,
    Answer,
    Reading,
    ReadingRule,
    ToolCall,
    format_verdict,
    read_turn,
    render_observation,
)
from drv_env.settings import above, at_least, check_fields
from drv_env.tasks import Task, TaskLike, task_from
from drv_env.tools.base import (
    SEARCH_SCHEMA,
    VISIT_SCHEMA,
    Call,
    Clock,
    Status,
    ToolResult,
    ToolSchema,
    is_budget_spent,
    still_clock,
)


class Ending(StrEnum):
    """How an episode ended; a closed set."""

    ANSWERED = "answered"
    FORCED_TURNS = "forced_turns"
    FORCED_CONTEXT = "forced_context"
    FORCED_TIME = "forced_time"
    FORCED_COST = "forced_cost"
    FORCED_UNREADABLE = "forced_unreadable"
    NO_ANSWER = "no_answer"
    BROKEN = "broken"


Budget = Literal["turns", "context", "time", "cost", "unreadable"]
FORCED: dict[Budget, Ending] = {
    "turns": Ending.FORCED_TURNS,
    "context": Ending.FORCED_CONTEXT,
    "time": Ending.FORCED_TIME,
    "cost": Ending.FORCED_COST,
    "unreadable": Ending.FORCED_UNREADABLE,
}
"""How an episode ends that was asked for its answer, by the budget that was reached."""


_HELD_BACK: tuple[Budget, ...] = ("turns", "context", "time", "cost")
"""Budgets whose request always has room; another that has none gives way to that of context."""


def forced_ending(budget: Budget, answered: bool) -> Ending:
    """The ending after the request for the answer.

    Without an answer it is ``no_answer``, but where nothing could be read turn after turn
    the ending goes on saying so.
    """
    return FORCED[budget] if answered or budget == "unreadable" else Ending.NO_ANSWER


class ObservationKind(StrEnum):
    """What stands in an observation."""

    RESULT = "result"
    MALFORMED = "malformed"
    REFUSED = "refused"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent sees after a turn; ``message`` is ``text`` inside ``<tool_response>``."""

    text: str
    kind: ObservationKind

    @property
    def message(self) -> str:
        """The content of the user message that carries the observation."""
        return render_observation(self.text)


@dataclass(frozen=True, slots=True)
class Closed:
    """The episode is over; ``answer`` is the final answer, stripped, where there is one."""

    ending: Ending
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an episode allows.

    Attributes:
        tools: schemas of the tools that may be called.
        system_prompt: None for the project's own text, "" for no system message, or any
            other text as it is.
        date: today's date for the project's own system prompt, or None.
        max_turns: tool turns before the answer is asked for, at least 1.
        count_forced_turn: True counts the forced answer's turn among ``max_turns``.
        max_context: tokens that the whole episode may fill, or None for no bound; needs a
            :class:`ContextCounter`.
        max_turn_tokens: the most tokens of one assistant turn, held back twice from the
            context: for the next turn and for the answer.
        max_seconds: seconds on the episode's clock before the answer is asked for, or None.
        max_cost: US dollars that the episode's calls may cost before the answer is asked
            for, or None.
        max_failures: failed calls in a row that break the episode, at least 1.
        max_unreadable: turns in a row of which nothing can be read before the answer is asked
            for, at least 1, or None for no bound.
        reading: how turns are read and judged, see :func:`drv_env.protocol.read_turn`; with
            ``"thought_optional"`` the environment's own texts don't ask for a thought.

    Raises:
        SettingError: naming a value that can't work.
    """

    tools: tuple[ToolSchema, ...] = (SEARCH_SCHEMA, VISIT_SCHEMA)
    system_prompt: str | None = None
    date: str | None = None
    max_turns: int = 200
    count_forced_turn: bool = False
    max_context: int | None = None
    max_turn_tokens: int = 8192
    max_seconds: float | None = None
    max_cost: float | None = None
    max_failures: int = 3
    max_unreadable: int | None = 5
    reading: ReadingRule = "default"

    def __post_init__(self) -> None:
        check_fields(
            self,
            max_turns=at_least(1),
            max_turn_tokens=at_least(1),
            max_failures=at_least(1),
            max_unreadable=at_least(1),
            max_seconds=above(0),
            max_cost=above(0),
        )
        if self.count_forced_turn and self.max_turns < 2:
            raise SettingError(
                "with count_forced_turn, max_turns must be at least 2 (one tool turn and the "
                f"answer), got {self.max_turns}"
            )

    @property
    def thought_optional(self) -> bool:
        """Whether a turn may come without a thought."""
        return self.reading == "thought_optional"

    @property
    def tool_turns(self) -> int:
        """Tool turns that are allowed."""
        return self.max_turns - 1 if self.count_forced_turn else self.max_turns


@dataclass(slots=True)
class Turn:
    """One turn taken, and what came back.

    Attributes:
        number: from 1.
        text: the assistant's turn, whole.
        reading: the tolerant reading.
        well_formed: the strict verdict (by the answer rule on the closing turn).
        tokens: tokens the turn was counted with, or None where nobody counts.
        call: the call it made, or None.
        result: what the tool gave, or None.
        observation: what the agent saw, or None on the closing turn.
    """

    number: int
    text: str
    reading: Reading
    well_formed: bool
    tokens: int | None = None
    call: Call | None = None
    result: ToolResult | None = None
    observation: Observation | None = None


class Episode:
    """One question being worked on.  See the module's first lines for the rules.

    Args:
        task: the question.
        rules: what is allowed.
        counter: counts context tokens; needed for ``rules.max_context``.
        clock: seconds, for ``rules.max_seconds``; the default stands still.

    Raises:
        SettingError: when the context can't hold the opening and two turns.

    Example:
        >>> episode = Episode(Task("Capital of France?", ("Paris",)), Rules())
        >>> episode.take("<think>I know.</think><answer>Paris</answer>")
        Closed(ending=<Ending.ANSWERED: 'answered'>, answer='Paris')
    """

    def __init__(
        self,
        task: TaskLike,
        rules: Rules,
        counter: ContextCounter | None = None,
        clock: Clock = still_clock,
        *,
        break_without_room: bool = False,
    ) -> None:
        self.task = task = task_from(task)
        self.rules = rules
        self.turns: list[Turn] = []
        self.ending: Ending | None = None
        self.answer: str | None = None
        self.error: DrvError | None = None
        self._counter = counter
        self._clock = clock
        self._time = 0.0
        self._started = self._now()
        self._forced: Budget | None = None
        self._pending: Turn | None = None
        self._failures = 0
        self._unreadable = 0
        self._cut_short: Budget | None = None
        self._seen: set[tuple[object, ...]] = set()
        self._names = tuple(tool.name for tool in rules.tools)
        self.messages: list[Message] = _opening_messages(task, rules)
        self.cost = 0.0
        """US dollars that calls have cost so far."""
        self.context = 0
        """Context tokens so far; stays 0 without a counter."""
        if counter is not None:
            self.context = counter.opening(self.messages)
        requests = (self._size(self._request(budget)) for budget in _HELD_BACK)
        self._held_back = 2 * rules.max_turn_tokens + max(requests)
        self._check_room(break_without_room)

    @property
    def opening(self) -> list[Message]:
        """The messages before the first turn."""
        count = 2 if self.messages[0]["role"] == "system" else 1
        return self.messages[:count]

    @property
    def forced(self) -> Budget | None:
        """The budget that ran out, once the answer has been asked for."""
        return self._forced

    @property
    def waiting(self) -> bool:
        """True between a call and its result."""
        return self._pending is not None

    def has_called(self, action: Action) -> bool:
        """Whether the episode has made this very call before; never so for an answer."""
        return not isinstance(action, Answer) and call_key(action) in self._seen

    def take(self, text: str, tokens: int | None = None) -> Call | Observation | Closed:
        """Take one assistant turn.

        Args:
            text: the turn, whole; where the chat template opened ``<think>``, with it.
            tokens: how many tokens were sampled; the counter is asked where None.

        Returns:
            A call to run and to hand back with :meth:`give`, an observation, or the end.

        Raises:
            RuntimeError: when the episode is over or waits for a result.
        """
        if self.ending is not None:
            raise RuntimeError(f"the episode is over ({self.ending}); start a new one")
        if self._pending is not None:
            raise RuntimeError("the episode waits for a tool's result; call give() first")
        reading = read_turn(text, self.rules.reading)
        final = self._forced is not None or isinstance(reading.action, Answer)
        if tokens is None and self._counter is not None:
            tokens = self._counter.turn(text)
        self.context += tokens or 0
        well_formed = format_verdict(text, final, self.rules.reading)
        turn = Turn(len(self.turns) + 1, text, reading, well_formed, tokens)
        self.turns.append(turn)
        self.messages.append({"role": "assistant", "content": text})
        if final:
            return self._close(reading.action)
        budget = self._spent()
        if budget is not None:
            return self._ask_for_answer(turn, budget)
        return self._act(turn, reading)

    def give(self, result: ToolResult) -> Observation | Closed:
        """Hand back the result of the call that :meth:`take` returned.

        Raises:
            RuntimeError: when no call is waiting.
        """
        turn = self._pending
        if turn is None:
            raise RuntimeError("no call is waiting for a result")
        self._pending = None
        turn.result = result
        self.cost += result.cost
        if is_budget_spent(result):
            return self._ask_for_answer(turn, "cost")
        if result.status is Status.FAILED:
            self._failures += 1
            if self._failures >= self.rules.max_failures:
                return self.break_off(
                    ToolError(f"{self._failures} calls in a row failed, the last: {result.text}")
                )
        else:
            self._failures = 0
        if self._cut_short is not None:
            return self._ask_for_answer(turn, self._cut_short)
        if self._out_of_time():
            return self._ask_for_answer(turn, "time")
        if self.rules.max_cost is not None and self.cost >= self.rules.max_cost:
            return self._ask_for_answer(turn, "cost")
        return self._observe(turn, result.text, ObservationKind.RESULT)

    def cut_short(self, budget: Budget = "time") -> None:
        """The budget is used up, whatever is counted: the next observation asks for the answer."""
        self._cut_short = budget

    def break_off(self, error: DrvError) -> Closed:
        """Record that the episode is broken, and why.  The only place that does.

        Also allowed after the last turn: a judge may be lost only then.
        """
        self._pending = None
        self.error = error
        self.ending = Ending.BROKEN
        return Closed(self.ending, self.answer)

    # ---- transitions ----------------------------------------------------------------

    def _act(self, turn: Turn, reading: Reading) -> Call | Observation:
        action = reading.action
        if reading.is_unread:
            return self._ask_again(turn, reading)
        self._unreadable = 0
        if action is None or isinstance(action, Answer):
            return self._refuse(turn, reading.complaint)
        call = Call(action, self.task, turn.number)
        if call.name not in self._names:
            return self._refuse(turn, prompts.unknown_tool(call.name, self._names))
        if isinstance(action, ToolCall):
            missing = self._missing_argument(action)
            if missing is not None:
                return self._refuse(turn, prompts.missing_argument(action.name, missing))
        key = call_key(action)
        if key in self._seen:
            call = Call(action, self.task, turn.number, duplicate=True)
        self._seen.add(key)
        turn.call = call
        self._pending = turn
        return call

    def _ask_again(self, turn: Turn, reading: Reading) -> Observation:
        self._unreadable += 1
        limit = self.rules.max_unreadable
        if limit is not None and self._unreadable >= limit:
            fits = self._has_room(self._size(self._request("unreadable")))
            return self._ask_for_answer(turn, "unreadable" if fits else "context")
        text = prompts.malformed(reading.complaint, self.rules.thought_optional)
        return self._observe(turn, text, ObservationKind.MALFORMED)

    def _refuse(self, turn: Turn, complaint: str) -> Observation:
        return self._observe(turn, prompts.refused(complaint), ObservationKind.REFUSED)

    def _missing_argument(self, action: ToolCall) -> str | None:
        schema = next(tool for tool in self.rules.tools if tool.name == action.name)
        required = schema.parameters.get("required", ())
        return next((name for name in required if name not in action.arguments), None)

    def _close(self, action: Action | None) -> Closed:
        if isinstance(action, Answer):
            self.answer = action.text.strip()
        if self._forced is None:
            self.ending = Ending.ANSWERED
        else:
            self.ending = forced_ending(self._forced, self.answer is not None)
        return Closed(self.ending, self.answer)

    def _observe(self, turn: Turn, text: str, kind: ObservationKind) -> Observation:
        observation = Observation(text, kind)
        size = self._size(observation)
        if not self._fits(self.context + size):
            return self._ask_for_answer(turn, "context")
        return self._append(turn, observation, size)

    def _ask_for_answer(self, turn: Turn, budget: Budget) -> Observation:
        self._forced = budget
        observation = self._request(budget)
        return self._append(turn, observation, self._size(observation))

    def _request(self, budget: Budget) -> Observation:
        text = prompts.answer_request(budget, self.rules.thought_optional)
        return Observation(text, ObservationKind.BUDGET)

    def _append(self, turn: Turn, observation: Observation, size: int) -> Observation:
        turn.observation = observation
        self.context += size
        self.messages.append({"role": "user", "content": observation.message})
        return observation

    # ---- budgets --------------------------------------------------------------------

    def _spent(self) -> Budget | None:
        if len(self.turns) >= self.rules.tool_turns:
            return "turns"
        if self._cut_short is not None:
            return self._cut_short
        if self._out_of_time():
            return "time"
        if not self._fits(self.context):
            return "context"
        return None

    def _out_of_time(self) -> bool:
        limit = self.rules.max_seconds
        return limit is not None and self._now() - self._started >= limit

    def _now(self) -> float:
        """The clock's seconds; a clock that fails, or gives no number, stands still.

        It may be a tool's, and a turn is never lost because of a tool.
        """
        try:
            found = float(self._clock())
        except Exception:  # noqa: BLE001 - somebody else's code
            return self._time
        if math.isfinite(found):
            self._time = found
        return self._time

    def _fits(self, context: int) -> bool:
        """Whether a tool turn may follow: room for it, the request, and the answer."""
        if self.rules.max_context is None:
            return True
        return context + self._held_back <= self.rules.max_context

    def _has_room(self, size: int) -> bool:
        """Whether a request of that size leaves room for the answer."""
        limit = self.rules.max_context
        return limit is None or self.context + size + self.rules.max_turn_tokens <= limit

    def _size(self, observation: Observation) -> int:
        return 0 if self._counter is None else self._counter.observation(observation.message)

    def _check_room(self, break_without: bool) -> None:
        if self.rules.max_context is None:
            return
        if self._counter is None:
            raise SettingError("max_context needs a counter; pass one, or leave max_context None")
        if not self._fits(self.context):
            error = SettingError(
                f"max_context={self.rules.max_context} is too small: the opening takes "
                f"{self.context} tokens and {self._held_back} are held back for one turn, the "
                "request for the answer and the answer; raise it or lower max_turn_tokens"
            )
            if not break_without:
                raise error
            self.break_off(error)


def _opening_messages(task: Task, rules: Rules) -> list[Message]:
    prompt = rules.system_prompt
    if prompt is None:
        prompt = prompts.build_system_prompt(rules.tools, rules.date, rules.thought_optional)
    messages: list[Message] = [{"role": "system", "content": prompt}] if prompt else []
    messages.append({"role": "user", "content": task.question})
    return messages
