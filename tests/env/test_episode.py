"""The episode's rules, driven bare: no tools, no clock but our own, no tokens but counted."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drv_env import prompts
from drv_env.call_keys import call_key
from drv_env.context import Message, TextCounter
from drv_env.episode import Closed, Ending, Episode, Observation, ObservationKind, Rules
from drv_env.errors import EngineError, JudgeError, SettingError, ToolError
from drv_env.protocol import Answer, Search, ToolCall, Visit, observation_body, render_turn
from drv_env.tasks import Task
from drv_env.testing import ManualClock
from drv_env.tools import SEARCH_SCHEMA, Call, Status, ToolResult, ToolSchema

TASK = Task("Capital of France?", ("Paris",))
SEARCH = render_turn("t", Search(("x",)))
VISIT = render_turn("t", Visit(("u",), "g"))
ANSWER = render_turn("t", Answer("Paris"))
OK, FAILED = ToolResult("found"), ToolResult("down", Status.FAILED)
CALCULATE = ToolSchema(
    "calculate", "Works it out.", {"type": "object", "required": ["sum"], "properties": {}}
)


_SHORT = ("turns", "context", "cost")


class Sized:
    """A counter with sizes of our own: opening 10, request 5, observations as long as told."""

    def __init__(self, request: int = 5, turn: int = 20) -> None:
        self.sizes = {prompts.answer_request(name): request for name in _SHORT}
        self.sizes[prompts.answer_request("time")] = request + 2
        self._turn = turn

    def opening(self, messages: Sequence[Message]) -> int:
        return 10

    def turn(self, text: str) -> int:
        return self._turn

    def observation(self, message: str) -> int:
        body = observation_body(message)
        return self.sizes.get(body, len(body))


def new(**rules: object) -> Episode:
    return Episode(TASK, Rules(**rules))  # type: ignore[arg-type]


def play(episode: Episode, text: str = SEARCH, result: ToolResult = OK) -> Observation | Closed:
    step = episode.take(text)
    return episode.give(result) if isinstance(step, Call) else step


def kind(step: object) -> ObservationKind | None:
    return step.kind if isinstance(step, Observation) else None


# ---- opening --------------------------------------------------------------------------


def test_an_episode_opens_with_the_systems_prompt_and_the_question() -> None:
    system, user = new().opening
    assert user == {"role": "user", "content": TASK.question}
    assert system["role"] == "system"
    shown = system["content"].split("<tools>\n")[1].split("\n</tools>")[0].split("\n")
    assert [json.loads(line)["name"] for line in shown] == ["search", "visit"]


def test_the_opening_stays_the_opening() -> None:
    for prompt in (None, "", "Be brief."):
        episode = new(system_prompt=prompt)
        opening = list(episode.opening)
        play(episode)
        assert episode.opening == opening
        assert len(episode.messages) == len(opening) + 2


def test_the_date_is_in_the_prompt_only_when_given() -> None:
    assert "Today is" not in new().opening[0]["content"]
    assert "Today is 1 May 2026." in new(date="1 May 2026").opening[0]["content"]


def test_the_system_prompt_can_be_left_out_or_given() -> None:
    assert [message["role"] for message in new(system_prompt="").opening] == ["user"]
    own = new(system_prompt=" As it is.\n", date="today").opening[0]
    assert own == {"role": "system", "content": " As it is.\n"}


def test_the_system_prompt_can_come_from_a_file(tmp_path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes("Łódź\r\n".encode())
    assert prompts.read_system_prompt(path).startswith("Łódź")
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(SettingError, match=r"prompt\.txt"):
        prompts.read_system_prompt(path)
    with pytest.raises(SettingError, match="missing"):
        prompts.read_system_prompt(tmp_path / "missing")


def test_the_system_prompt_can_come_from_a_trajectory() -> None:
    episode = new(system_prompt="Released.")
    assert prompts.system_prompt_of(episode.messages) == "Released."
    for messages in ([], [{"role": "user", "content": "q"}]):
        with pytest.raises(SettingError, match="no system message"):
            prompts.system_prompt_of(messages)


# ---- turns ----------------------------------------------------------------------------


def test_a_call_waits_for_its_result_and_shows_it() -> None:
    episode = new()
    step = episode.take(SEARCH)
    assert step == Call(Search(("x",)), TASK, 1)
    assert episode.waiting
    seen = episode.give(OK)
    assert not episode.waiting
    assert seen == Observation("found", ObservationKind.RESULT)
    assert episode.messages[-2:] == [
        {"role": "assistant", "content": SEARCH},
        {"role": "user", "content": "<tool_response>\nfound\n</tool_response>"},
    ]
    turn = episode.turns[0]
    assert (turn.number, turn.call, turn.result, turn.observation) == (1, step, OK, seen)
    assert turn.well_formed


def test_an_answer_ends_the_episode() -> None:
    episode = new()
    assert episode.take(render_turn("t", Answer(" Paris "))) == Closed(Ending.ANSWERED, "Paris")
    assert episode.answer == "Paris"
    assert episode.turns[0].well_formed
    assert episode.turns[0].observation is None


def test_a_malformed_answer_counts_and_is_judged_by_the_answer_rule() -> None:
    episode = new()
    assert episode.take("<think>t</think>so: <answer>Paris</answer>").ending is Ending.ANSWERED  # type: ignore[union-attr]
    assert not episode.turns[0].well_formed


def searching(arguments: str) -> str:
    body = f'{{"name": "search", "arguments": {arguments}}}'
    return f"<think>t</think><tool_call>{body}</tool_call>"


UNUSABLE = {
    "malformed": "hello",
    "no action": "<think>t</think>",
    "both kinds": SEARCH + "<answer>X</answer>",
    "no JSON": "<think>t</think><tool_call>x</tool_call>",
    "unknown": render_turn("t", ToolCall("translate", {})),
    "missing": searching("{}"),
    "missing in own": render_turn("t", ToolCall("calculate", {"sums": 1})),
    "wrong": searching('{"query": 1}'),
    "empty": searching('{"query": []}'),
}


def test_every_fault_has_an_observation_of_its_own() -> None:
    said: dict[str, str] = {}
    for what, text in UNUSABLE.items():
        episode = new(tools=(*Rules().tools, CALCULATE))
        step = episode.take(text)
        assert isinstance(step, Observation)
        malformed = what in ("malformed", "no action", "both kinds", "no JSON")
        expected = ObservationKind.MALFORMED if malformed else ObservationKind.REFUSED
        assert step.kind is expected, what
        assert episode.messages[-1] == {"role": "user", "content": step.message}
        assert observation_body(step.message) == step.text
        assert episode.turns[0].call is None
        said[what] = step.text
    said["failed"] = prompts.failed_call("search", "reset")
    said.update({name: prompts.answer_request(name) for name in (*_SHORT, "time")})
    assert len(set(said.values())) == len(said)
    assert "'translate'" in said["unknown"]
    assert "search, visit, calculate" in said["unknown"]
    assert '"sum"' in said["missing in own"]


def test_a_tool_off_the_list_is_unknown() -> None:
    episode = new(tools=(SEARCH_SCHEMA,))
    assert kind(episode.take(VISIT)) is ObservationKind.REFUSED


def test_an_own_tool_is_called_with_its_arguments() -> None:
    action = ToolCall("calculate", {"sum": [1, {"a": "b"}]})
    step = new(tools=(CALCULATE,)).take(render_turn("t", action))
    assert isinstance(step, Call)
    assert step.action == action
    assert step.name == "calculate"


def test_the_reading_is_a_setting() -> None:
    text = "<think>or <answer>Y</answer>?</think><answer>X</answer>"
    assert new().take(text) == Closed(Ending.ANSWERED, "X")
    assert new(reading="released").take(text) == Closed(Ending.ANSWERED, "Y")


def test_the_same_call_again_is_marked() -> None:
    def search(*queries: str) -> str:
        return render_turn("t", Search(queries))

    episode = new()
    marks = []
    for text in (
        search("a", "b"),
        search("b", "a", "b"),
        search("a"),
        render_turn("t", Visit(("a", "b"), "g")),
        render_turn("t", Visit(("b", "a"), "other goal")),
        render_turn("t", Visit(("a",), "g")),
        search("a"),
    ):
        step = episode.take(text)
        assert isinstance(step, Call)
        marks.append(step.duplicate)
        episode.give(OK)
    assert marks == [False, True, False, False, True, False, True]


@given(st.dictionaries(st.text(), st.one_of(st.integers(), st.floats(), st.text(), st.none())))
def test_calls_of_own_tools_are_the_same_whatever_the_order(arguments: dict) -> None:
    backwards = dict(reversed(arguments.items()))
    assert call_key(ToolCall("c", arguments)) == call_key(ToolCall("c", backwards))
    assert call_key(ToolCall("d", arguments)) != call_key(ToolCall("c", arguments))


# ---- budgets --------------------------------------------------------------------------


def test_the_last_tool_turn_is_not_run_and_one_answer_turn_follows() -> None:
    episode = new(max_turns=3)
    assert [kind(play(episode)) for _ in range(2)] == [ObservationKind.RESULT] * 2
    assert episode.forced is None
    asked = episode.take(SEARCH)
    assert kind(asked) is ObservationKind.BUDGET
    assert episode.forced == "turns"
    assert episode.turns[-1].call is None
    assert "turns" in episode.messages[-1]["content"]
    assert episode.take(ANSWER) == Closed(Ending.FORCED_TURNS, "Paris")
    assert len(episode.turns) == 4


def test_the_forced_turn_can_count_among_the_turns() -> None:
    episode = new(max_turns=3, count_forced_turn=True)
    assert kind(play(episode)) is ObservationKind.RESULT
    assert kind(play(episode)) is ObservationKind.BUDGET
    assert episode.take(ANSWER) == Closed(Ending.FORCED_TURNS, "Paris")
    assert len(episode.turns) == 3


def test_an_answer_on_the_last_tool_turn_is_of_its_own_accord() -> None:
    assert new(max_turns=1).take(ANSWER) == Closed(Ending.ANSWERED, "Paris")


def test_malformed_and_refused_turns_cost_a_turn() -> None:
    episode = new(max_turns=3)
    kinds = [kind(episode.take(text)) for text in ("hello", UNUSABLE["unknown"], "hello")]
    assert kinds == ["malformed", "refused", "budget"]


@pytest.mark.parametrize("text", ["", "hello", SEARCH, *UNUSABLE.values()])
def test_after_the_request_any_turn_closes_the_episode(text: str) -> None:
    episode = new(max_turns=1)
    episode.take(SEARCH)
    assert episode.take(text) == Closed(Ending.NO_ANSWER, None)
    assert not episode.turns[-1].well_formed
    with pytest.raises(RuntimeError, match="over"):
        episode.take(ANSWER)


def test_time_ends_at_its_limit_and_not_before() -> None:
    clock = ManualClock(100.0)
    episode = Episode(TASK, Rules(max_seconds=10.0), clock=clock)
    clock.advance(9.999)
    assert kind(play(episode)) is ObservationKind.RESULT
    clock.now = 110.0
    assert kind(episode.take(SEARCH)) is ObservationKind.BUDGET
    assert episode.take(ANSWER) == Closed(Ending.FORCED_TIME, "Paris")


def test_time_that_a_tool_uses_up_takes_its_output() -> None:
    clock = ManualClock()
    episode = Episode(TASK, Rules(max_seconds=10.0), clock=clock)
    episode.take(SEARCH)
    clock.advance(10.0)
    asked = episode.give(OK)
    assert kind(asked) is ObservationKind.BUDGET
    assert episode.forced == "time"
    assert episode.turns[0].result == OK
    assert "found" not in episode.messages[-1]["content"]


def test_an_answer_in_time_needs_no_time() -> None:
    clock = ManualClock()
    episode = Episode(TASK, Rules(max_seconds=1.0), clock=clock)
    clock.advance(5.0)
    assert episode.take(ANSWER) == Closed(Ending.ANSWERED, "Paris")


def held(max_context: int, **sizes: int) -> Episode:
    rules = Rules(max_context=max_context, max_turn_tokens=20)
    return Episode(TASK, rules, Sized(**sizes))


def test_the_opening_must_leave_room_for_two_turns_and_the_request() -> None:
    assert held(10 + 2 * 20 + 7).context == 10  # the longest of the requests is held back
    with pytest.raises(SettingError, match="max_context=56"):
        held(10 + 2 * 20 + 6)


def test_an_observation_that_just_fits_is_shown() -> None:
    room = 30
    for size, expected in ((room, ObservationKind.RESULT), (room + 1, ObservationKind.BUDGET)):
        episode = held(10 + 20 + room + 2 * 20 + 7)
        seen = play(episode, result=ToolResult("x" * size))
        assert kind(seen) is expected
        assert episode.context == 10 + 20 + (size if kind(seen) == "result" else 5)
    assert episode.forced == "context"
    assert "x" * 31 not in episode.messages[-1]["content"]
    assert episode.take(ANSWER) == Closed(Ending.FORCED_CONTEXT, "Paris")


def test_a_turn_after_which_nothing_fits_is_not_run() -> None:
    episode = held(10 + 2 * 20 + 7)
    assert kind(episode.take(SEARCH)) is ObservationKind.BUDGET
    assert episode.context == 10 + 20 + 5


def test_a_complaint_that_does_not_fit_makes_way_too() -> None:
    episode = held(10 + 20 + 30 + 2 * 20 + 7)
    assert kind(episode.take("hello")) is ObservationKind.BUDGET


def test_tokens_that_were_sampled_count_before_the_counter() -> None:
    episode = Episode(TASK, Rules(), Sized())
    episode.take(SEARCH, tokens=3)
    assert episode.context == 13
    assert episode.turns[0].tokens == 3
    episode.give(ToolResult("1234"))
    episode.take(SEARCH)
    assert episode.context == 13 + 4 + 20


def test_without_a_counter_nothing_is_counted() -> None:
    episode = new()
    play(episode)
    assert (episode.context, episode.turns[0].tokens) == (0, None)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([SEARCH, VISIT, "hello", UNUSABLE["unknown"], ANSWER]),
        st.integers(0, 20),
        st.text(alphabet="x", max_size=150),
        st.sampled_from([Status.OK, Status.EMPTY, Status.FAILED]),
        st.floats(0, 5),
    ),
    max_size=25,
)


@given(
    steps=STEPS,
    max_context=st.integers(57, 900),
    max_turns=st.integers(1, 12),
    request=st.integers(0, 15),
)
@settings(deadline=None, max_examples=300)
def test_no_sequence_of_turns_overfills_the_context(
    steps: list, max_context: int, max_turns: int, request: int
) -> None:
    rules = Rules(
        max_context=max_context,
        max_turn_tokens=20,
        max_turns=max_turns,
        max_seconds=30.0,
        max_failures=3,
    )
    clock, counter = ManualClock(), Sized(request)
    try:
        episode = Episode(TASK, rules, counter, clock)
    except SettingError:
        assert 10 + 2 * 20 + request + 2 > max_context
        return
    for text, tokens, output, status, seconds in steps:
        if episode.ending is not None:
            break
        step = episode.take(text, tokens)
        clock.advance(seconds)
        if isinstance(step, Call):
            step = episode.give(ToolResult(output, status))
        assert episode.context <= max_context
        if isinstance(step, Observation) and episode.forced is None:
            assert episode.context + 2 * 20 + request <= max_context
        counted = 10 + sum((turn.tokens or 0) for turn in episode.turns)
        shown = [turn.observation for turn in episode.turns if turn.observation]
        assert episode.context == counted + sum(counter.observation(o.message) for o in shown)
    assert len(episode.turns) <= max_turns + 1
    roles = [message["role"] for message in episode.messages[1:]]
    assert roles[::2] == ["user"] * len(roles[::2])
    assert roles[1::2] == ["assistant"] * len(roles[1::2])
    assert episode.ending is None or episode.ending in set(Ending)
    assert (episode.ending is None) or not episode.waiting


def test_text_can_be_counted_without_a_transcript() -> None:
    counter = TextCounter(len, per_message=2)
    episode = Episode(TASK, Rules(system_prompt="12345"), counter)
    assert episode.context == 5 + 2 + len(TASK.question) + 2 + 2
    play(episode)
    shown = len("<tool_response>\nfound\n</tool_response>")
    assert episode.context == 11 + len(TASK.question) + len(SEARCH) + shown + 4


def test_a_message_counts_five_tokens_besides_its_text_unless_told_otherwise() -> None:
    counter = TextCounter(len)
    assert counter.opening([{"role": "user", "content": "abc"}]) == 3 + 5 + 5
    assert counter.observation("abc") == 3 + 5 + 5
    assert TextCounter(len, per_message=0).observation("abc") == 3
    with pytest.raises(SettingError, match="per_message"):
        TextCounter(len, per_message=-1)


# ---- failures and breaking ------------------------------------------------------------


def test_failures_in_a_row_break_the_episode() -> None:
    episode = new(max_failures=2)
    assert kind(play(episode, result=FAILED)) is ObservationKind.RESULT
    assert play(episode, result=FAILED) == Closed(Ending.BROKEN, None)
    assert isinstance(episode.error, ToolError)
    assert "2 calls in a row failed, the last: down" in str(episode.error)
    assert not episode.waiting


def test_failures_apart_do_not() -> None:
    episode = new(max_failures=2)
    for result in (FAILED, OK, FAILED, ToolResult("", Status.EMPTY), FAILED):
        assert kind(play(episode, result=result)) is ObservationKind.RESULT
    play(episode, "hello")  # no call: neither a failure nor a success
    assert play(episode, result=FAILED) == Closed(Ending.BROKEN, None)


def test_refusals_of_a_tool_are_no_failures() -> None:
    episode = new(max_failures=1)
    assert kind(play(episode, result=ToolResult("no", Status.REFUSED))) is ObservationKind.RESULT


def test_an_episode_can_be_broken_off_at_any_time() -> None:
    episode = new()
    episode.take(SEARCH)
    error = EngineError("lost")
    assert episode.break_off(error) == Closed(Ending.BROKEN, None)
    assert episode.error is error
    assert not episode.waiting
    with pytest.raises(RuntimeError, match="no call is waiting"):
        episode.give(OK)
    with pytest.raises(RuntimeError, match="over"):
        episode.take(ANSWER)


def test_a_judge_may_be_lost_after_the_last_turn() -> None:
    episode = new()
    episode.take(ANSWER)
    assert episode.break_off(JudgeError("silent")) == Closed(Ending.BROKEN, "Paris")
    assert episode.ending is Ending.BROKEN


def test_take_and_give_alternate() -> None:
    episode = new()
    with pytest.raises(RuntimeError, match="no call is waiting"):
        episode.give(OK)
    episode.take(SEARCH)
    with pytest.raises(RuntimeError, match="give"):
        episode.take(SEARCH)
    episode.give(OK)
    with pytest.raises(RuntimeError, match="no call is waiting"):
        episode.give(OK)
    assert len(episode.turns) == 1


# ---- turns that can't be read ---------------------------------------------------------


def unread(episode: Episode, *texts: str) -> list[ObservationKind | Ending | None]:
    """What comes of turns: the kinds of observations, or how it ended."""
    steps = [play(episode, text) for text in texts]
    return [step.ending if isinstance(step, Closed) else kind(step) for step in steps]


MALFORMED, BUDGET = ObservationKind.MALFORMED, ObservationKind.BUDGET


def test_turns_that_can_not_be_read_in_a_row_are_a_budget() -> None:
    episode = new()
    assert unread(episode, *["hello"] * 6) == [*[MALFORMED] * 4, BUDGET, Ending.FORCED_UNREADABLE]
    assert (episode.forced, episode.answer, episode.ending) == (
        "unreadable",
        None,
        Ending.FORCED_UNREADABLE,
    )
    assert episode.turns[4].observation is not None
    assert "unreadable" in episode.turns[4].observation.text
    for closing, answer in ((ANSWER, "Paris"), (SEARCH, None)):
        episode = new(max_unreadable=2)
        unread(episode, "a", "<think>b</think>")
        assert episode.take(closing) == Closed(Ending.FORCED_UNREADABLE, answer)
    episode = new(max_unreadable=1)
    assert unread(episode, "a", "b") == [BUDGET, Ending.FORCED_UNREADABLE]


def test_a_turn_that_is_read_begins_the_count_anew() -> None:
    episode = new(max_unreadable=3)
    refused = render_turn("t", ToolCall("none", {}))
    unusable = '<think>t</think><tool_call>{"name": "search", "arguments": {}}</tool_call>'
    for readable in (SEARCH, refused, unusable):
        assert unread(episode, "a", "b", readable)[:2] == [MALFORMED, MALFORMED]
    assert unread(episode, "a", "b", "c") == [MALFORMED, MALFORMED, BUDGET]
    assert len(episode.turns) == 12


def test_without_the_bound_unreadable_turns_cost_a_turn_each() -> None:
    episode = new(max_unreadable=None, max_turns=9)
    assert unread(episode, *["a"] * 10) == [*[MALFORMED] * 8, BUDGET, Ending.NO_ANSWER]
    assert episode.forced == "turns"
    assert unread(new(max_unreadable=2, max_turns=2), "a", "b", "c")[1:] == [
        BUDGET,
        Ending.NO_ANSWER,
    ]


def test_its_request_gives_way_to_that_of_context_where_it_does_not_fit() -> None:
    for size, budget in ((27, "unreadable"), (28, "context")):
        counter = Sized()
        counter.sizes[prompts.answer_request("unreadable")] = size
        # opening 10, one turn of 20; room for a turn of 20, a request of 7 and an answer of 20
        rules = Rules(max_context=10 + 20 + 20 + 7 + 20, max_turn_tokens=20, max_unreadable=1)
        episode = Episode(TASK, rules, counter)
        episode.take("hello")
        assert episode.forced == budget
        assert episode.context + 20 <= 10 + 20 + 20 + 7 + 20


def test_where_the_thought_is_optional_nobody_asks_for_one() -> None:
    episode = new(reading="thought_optional", max_unreadable=2)
    assert "<think>" in new().opening[0]["content"]
    assert "<think>" not in episode.opening[0]["content"]
    bare = SEARCH.partition("</think>\n")[2]
    assert isinstance(episode.take(bare), Call)
    episode.give(OK)
    assert episode.turns[0].well_formed
    said = [episode.take("hello"), episode.take("hello")]
    assert [kind(step) for step in said] == [MALFORMED, BUDGET]
    assert all(isinstance(step, Observation) and "<think>" not in step.text for step in said)
    assert episode.take("<answer>Paris</answer>") == Closed(Ending.FORCED_UNREADABLE, "Paris")
    assert episode.turns[-1].well_formed
    default = new()
    default.take(bare)
    assert not default.turns[0].well_formed


def test_endings_are_a_closed_set() -> None:
    assert {str(ending) for ending in Ending} == {
        "answered",
        "forced_turns",
        "forced_context",
        "forced_time",
        "forced_cost",
        "forced_unreadable",
        "no_answer",
        "broken",
    }


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"max_turns": 0}, "max_turns .* got 0"),
        ({"max_turn_tokens": 0}, "max_turn_tokens .* got 0"),
        ({"max_failures": -1}, "max_failures .* got -1"),
        ({"max_unreadable": 0}, "max_unreadable .* got 0"),
        ({"reading": "loose"}, "reading .* 'loose'"),
        ({"max_turns": 1, "count_forced_turn": True}, "max_turns .* got 1"),
        ({"max_seconds": 0.0}, "max_seconds .* got 0"),
        ({"max_seconds": float("nan")}, "max_seconds .* got nan"),
        ({"reading": "strict"}, "reading .* 'strict'"),
    ],
)
def test_settings_that_cannot_work_are_named(arguments: dict, named: str) -> None:
    with pytest.raises(SettingError, match=named):
        Rules(**arguments)


def test_a_context_budget_needs_a_counter() -> None:
    with pytest.raises(SettingError, match="counter"):
        new(max_context=100_000)


# ---- cost -----------------------------------------------------------------------------


def paid(cost: float) -> ToolResult:
    return ToolResult("found", cost=cost)


def test_the_answer_is_asked_for_when_the_calls_have_cost_enough():
    episode = Episode(Task("Q?", ("A",)), Rules(max_cost=1.0))
    assert isinstance(episode.take(render_turn("t", Search(("a",)))), Call)
    assert episode.give(paid(0.6)).kind == "result"
    assert isinstance(episode.take(render_turn("t", Search(("b",)))), Call)
    assert episode.give(paid(0.4)).kind == "budget"
    assert episode.cost == pytest.approx(1.0)
    assert episode.forced == "cost"
    closed = episode.take("<think>t</think><answer>A</answer>")
    assert closed == Closed(Ending.FORCED_COST, "A")


def test_tools_whose_own_budget_is_spent_ask_for_the_answer_and_break_nothing():
    episode = Episode(Task("Q?", ("A",)), Rules(max_failures=1))
    episode.take(render_turn("t", Search(("a",))))
    spent = ToolResult("spent", Status.FAILED, data={"reason": "spent", "kind": "budget"})
    assert episode.give(spent).kind == "budget"
    assert episode.take("no answer").ending is Ending.NO_ANSWER


def test_a_cost_of_nothing_is_no_budget():
    with pytest.raises(SettingError, match="max_cost"):
        Rules(max_cost=0.0)
