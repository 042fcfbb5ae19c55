"""Information gain and the format penalty as wrappers, alone, together and in company."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence as equivalent
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

from drv_env import (
    ENV_ID,
    DeepResearchEnv,
    EngineError,
    FormatPenalty,
    InformationGainReward,
    Rules,
    SettingError,
)
from drv_env.context import Message
from drv_env.protocol import Answer, Search, Visit, render_turn
from drv_env.testing import FakeScorer, FakeTools
from drv_env.tools import Status, ToolResult

TASKS = [("Capital of France?", ("Paris", "City of Light"))]
SEARCH = render_turn("t", Search(("x",)))
VISIT = render_turn("t", Visit(("u",), "g"))
MALFORMED_VISIT = VISIT + " so"
PARIS = render_turn("t", Answer("Paris"))
TURNS = {
    "search": SEARCH,
    "visit": VISIT,
    "malformed visit": MALFORMED_VISIT,
    "hello": "hello",
    "unknown": '<think>t</think><tool_call>{"name": "fly", "arguments": {}}</tool_call>',
    "answer": PARIS,
    "malformed answer": PARIS + " so",
}


def base(script: Any = None, **rules: Any) -> DeepResearchEnv:
    return DeepResearchEnv(TASKS, FakeTools(script), rules=Rules(**rules))


def gaining(
    values: Sequence[float] | Callable[[Sequence[Message], str], float],
    script: Any = None,
    rules: dict[str, Any] | None = None,
    **arguments: Any,
) -> InformationGainReward:
    env = InformationGainReward(base(script, **(rules or {})), FakeScorer(values), **arguments)
    env.reset(seed=0)
    return env


def paid(env: gymnasium.Env, *texts: str) -> list[tuple[float, float | None]]:
    """Reward and gain of each step."""
    steps = [env.step(text) for text in texts]
    return [(float(step[1]), step[4]["turn_reward"].information_gain) for step in steps]


def test_a_visit_is_paid_what_it_taught_at_its_own_step() -> None:
    env = gaining([-3.0, -1.0, -1.5])
    assert paid(env, SEARCH, VISIT, "hello", SEARCH, VISIT, PARIS) == [
        (0.0, None),
        (2.0, 2.0),
        (0.0, None),
        (0.0, None),
        (-0.5, -0.5),
        (1.0, None),
    ]


def test_only_histories_after_a_visit_and_the_first_are_scored() -> None:
    scorer = FakeScorer([-1.0])
    env = InformationGainReward(base(), scorer)
    env.reset(seed=0)
    for text in (SEARCH, VISIT, "hello", PARIS):
        env.step(text)
    assert scorer.scored == [(2, "Paris"), (6, "Paris")]


def test_a_gain_of_zero_is_a_value() -> None:
    assert paid(gaining([-1.0]), SEARCH, VISIT) == [(0.0, None), (0.0, 0.0)]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_gives_none_and_no_baseline(odd: float) -> None:
    env = gaining([-3.0, odd, -1.0])
    assert paid(env, VISIT, VISIT) == [(0.0, None), (2.0, 2.0)]
    assert paid(gaining([odd, -3.0, -1.0]), VISIT, VISIT) == [(0.0, None), (2.0, 2.0)]


def test_the_gain_can_be_of_probabilities() -> None:
    env = gaining([math.log(0.25), math.log(0.75)], kind="prob_diff")
    assert paid(env, VISIT)[0][1] == pytest.approx(0.5)


def test_the_first_gold_answer_or_the_best_is_scored() -> None:
    def values(messages: Sequence[Message], answer: str) -> float:
        if answer == "Paris":
            return -4.0
        return math.nan if len(messages) == 2 else -1.0

    assert paid(gaining(values), VISIT) == [(0.0, 0.0)]
    assert paid(gaining(values, answers="best"), VISIT) == [(3.0, 3.0)]


@pytest.mark.parametrize("status", [Status.OK, Status.EMPTY, Status.REFUSED])
def test_a_visit_whose_result_was_seen_is_scored(status: Status) -> None:
    env = gaining([-2.0, -1.0], {"visit": ToolResult("nothing", status)})
    assert paid(env, VISIT) == [(1.0, 1.0)]


def test_a_failed_visit_is_not_scored() -> None:
    env = gaining([-3.0, -1.0], {"visit": [OSError("reset"), "page"]})
    assert paid(env, VISIT, VISIT) == [(0.0, None), (2.0, 2.0)]


def test_a_visit_that_made_way_for_the_request_is_not_scored() -> None:
    env = gaining([-3.0, -1.0], rules={"max_turns": 2})
    assert paid(env, SEARCH, VISIT, PARIS) == [(0.0, None), (0.0, None), (1.0, None)]
    scorer: FakeScorer = env.scorer  # type: ignore[assignment]
    assert len(scorer.scored) == 1


def test_a_malformed_visit_that_was_read_is_the_next_baseline() -> None:
    for wrap in (
        lambda env: FormatPenalty(env),
        lambda env: env,
    ):
        env = wrap(gaining([-5.0, -2.0, -1.5]))
        rewards = paid(env, MALFORMED_VISIT, VISIT)
        assert rewards[0] == ((3.0, 3.0) if isinstance(env, InformationGainReward) else (-1.0, 3.0))
        assert rewards[1] == (0.5, 0.5)


def test_the_last_turn_never_has_a_gain() -> None:
    broken = gaining([-2.0, -1.0], {"visit": OSError("x")}, rules={"max_failures": 1})
    assert paid(broken, VISIT) == [(0.0, None)]
    unanswered = gaining([-2.0, -1.0], rules={"max_turns": 1})
    assert paid(unanswered, VISIT, VISIT) == [(0.0, None), (0.0, None)]


def test_other_tools_can_be_scored() -> None:
    env = gaining([-3.0, -2.0, -1.0], tools=("search", "visit"))
    assert paid(env, SEARCH, VISIT) == [(1.0, 1.0), (1.0, 1.0)]


def test_a_new_episode_begins_with_a_new_baseline() -> None:
    env = gaining([-3.0, -1.0, -9.0, -8.5])
    paid(env, VISIT)
    env.reset()
    assert paid(env, VISIT) == [(0.5, 0.5)]


def test_a_malformed_turn_earns_the_penalty_alone() -> None:
    env = FormatPenalty(base(max_turns=4), penalty=0.25)
    env.reset(seed=0)
    steps = [env.step(text) for text in ("hello", SEARCH, TURNS["malformed answer"])]
    assert [step[1] for step in steps] == [-0.25, 0.0, -0.25]
    assert [step[4]["penalised"] for step in steps] == [True, False, True]
    assert steps[-1][2]
    assert steps[-1][4]["turn_reward"].outcome == 1.0


def test_a_malformed_visit_earns_the_penalty_in_either_order() -> None:
    outside = FormatPenalty(InformationGainReward(base(), FakeScorer([-3.0, -1.0])))
    inside = InformationGainReward(FormatPenalty(base()), FakeScorer([-3.0, -1.0]))
    for env in (outside, inside):
        env.reset(seed=0)
        assert paid(env, MALFORMED_VISIT) == [(-1.0, 2.0)]


def test_the_last_turn_of_a_broken_episode_keeps_its_nothing() -> None:
    env = FormatPenalty(base({"visit": OSError("x")}, max_failures=1))
    env.reset(seed=0)
    _, reward, _, truncated, info = env.step(MALFORMED_VISIT)
    assert (reward, truncated, info["penalised"]) == (0.0, True, False)
    assert not info["verdict"]


def test_a_forced_turn_without_an_answer_is_penalised() -> None:
    env = FormatPenalty(base(max_turns=1))
    env.reset(seed=0)
    env.step(SEARCH)
    _, reward, _, truncated, _ = env.step(SEARCH)
    assert (reward, truncated) == (-1.0, True)


@given(
    texts=st.lists(st.sampled_from(list(TURNS.values())), min_size=1, max_size=12),
    values=st.lists(
        st.one_of(st.floats(-10, 0), st.sampled_from([math.nan, -math.inf])), min_size=1, max_size=6
    ),
    failures=st.lists(st.booleans(), min_size=1, max_size=5),
    max_turns=st.integers(1, 8),
    penalty=st.floats(0, 3),
    kind=st.sampled_from(["log_prob_diff", "prob_diff"]),
)
@settings(deadline=None, max_examples=150)
def test_the_order_of_the_wrappers_makes_no_difference(
    texts: list, values: list, failures: list, max_turns: int, penalty: float, kind: Any
) -> None:
    script = {"visit": [OSError("reset") if failed else "page" for failed in failures]}
    rules = {"max_turns": max_turns, "max_failures": 2}
    first: gymnasium.Env = InformationGainReward(
        FormatPenalty(base(script, **rules), penalty), FakeScorer(values), kind=kind
    )
    second: gymnasium.Env = FormatPenalty(
        InformationGainReward(base(script, **rules), FakeScorer(values), kind=kind), penalty
    )
    assert equivalent(first.reset(seed=0), second.reset(seed=0))
    for text in texts:
        one, other = first.step(text), second.step(text)
        assert one[:4] == other[:4]
        assert one[4].keys() == other[4].keys()
        assert all(one[4][key] == other[4][key] for key in one[4])
        record = one[4]["turn_reward"]
        if not record.well_formed and one[4]["ending"] != "broken":
            assert one[1] == -penalty
        else:
            assert one[1] == (record.information_gain or 0.0) + (record.outcome or 0.0)
        if one[2] or one[3]:
            break


class Fixed:
    """A scorer that can't be copied."""

    def score(
        self, messages: Sequence[Message], answer: str, transcript: object | None = None
    ) -> float:
        return -float(len(messages))

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("the scorer was copied")


def test_the_scorer_is_held_by_reference() -> None:
    scorer = Fixed()
    env = InformationGainReward(base(), scorer, tools=["visit"])
    assert env.scorer is scorer
    assert env._saved_kwargs["scorer"] is scorer


def test_the_spec_of_a_wrapped_env_makes_it_again() -> None:
    inner = gymnasium.make(ENV_ID, tasks=TASKS, tools=FakeTools())
    env = FormatPenalty(
        InformationGainReward(inner, FakeScorer([-2.0, -1.0]), kind="prob_diff"), penalty=0.5
    )
    for spec in (env.spec, pickle.loads(pickle.dumps(env.spec))):
        again = gymnasium.make(spec)
        assert isinstance(again, FormatPenalty)
        assert again.penalty == 0.5
        assert isinstance(again.env, InformationGainReward)
        assert again.env.kind == "prob_diff"
        again.reset(seed=0)
        assert paid(again, VISIT, "hello")[0][1] == pytest.approx(math.exp(-1) - math.exp(-2))


def test_a_pickled_wrapped_env_goes_on_where_it_was() -> None:
    env = FormatPenalty(gaining([-3.0, -2.0, -1.75]))
    paid(env, VISIT)
    copy = pickle.loads(pickle.dumps(env))
    assert paid(copy, VISIT, "hello") == paid(env, VISIT, "hello") == [(0.25, 0.25), (-1.0, None)]


def test_gymnasiums_own_wrappers_compose() -> None:
    made = gymnasium.make(ENV_ID, tasks=TASKS, tools=FakeTools())
    env = RecordEpisodeStatistics(
        FormatPenalty(TimeLimit(InformationGainReward(made, FakeScorer([-3.0, -1.0])), 3))
    )
    env.reset(seed=0)
    assert paid(env, VISIT, "hello") == [(2.0, 2.0), (-1.0, None)]
    *_, truncated, info = env.step(SEARCH)
    assert truncated
    assert info["ending"] is None
    assert info["episode"]["r"] == 1.0
    assert info["episode"]["l"] == 3
    env.reset()
    assert env.step(PARIS)[1] == 1.0


def test_the_wrappers_go_into_gymnasiums_vector_env() -> None:
    env = gymnasium.make_vec(
        ENV_ID,
        num_envs=2,
        vectorization_mode="sync",
        wrappers=[lambda inner: InformationGainReward(inner, FakeScorer([-2.0, -1.0]))],
        tasks=TASKS,
        tools=FakeTools(),
    )
    env.reset(seed=0)
    _, rewards, _, _, _ = env.step([VISIT, SEARCH])
    assert rewards.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"kind": "difference"}, "'difference'"),
        ({"answers": "all"}, "'all'"),
        ({"tools": "visit"}, "'visit'"),
        ({"tools": ()}, r"\(\)"),
    ],
)
def test_settings_that_cannot_work_are_named(arguments: dict, named: str) -> None:
    with pytest.raises(SettingError, match=named):
        InformationGainReward(base(), FakeScorer([0.0]), **arguments)


@pytest.mark.parametrize("penalty", [-0.1, math.nan, math.inf])
def test_a_penalty_is_at_least_nothing(penalty: float) -> None:
    with pytest.raises(SettingError, match="penalty"):
        FormatPenalty(base(), penalty)


@pytest.mark.parametrize("penalty_first", [True, False])
def test_a_lost_scorer_breaks_the_episode(research_env, penalty_first):
    def values(messages, answer):
        if len(messages) > 3:
            raise EngineError("the engine is gone")
        return -1.0

    env = research_env()
    if penalty_first:
        env = InformationGainReward(FormatPenalty(env), FakeScorer(values))
    else:
        env = FormatPenalty(InformationGainReward(env, FakeScorer(values)))
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(
        render_turn("a", Visit(("https://e.org",), "x"))
    )
    assert (observation, reward, terminated, truncated) == ("", 0.0, False, True)
    assert info["ending"] == "broken"
    assert "engine is gone" in info["error"]
    assert info["turn_reward"].outcome is None
    assert info["penalised"] is False


@pytest.mark.parametrize("odd", ["-1.0", None, True, [1.0], 1j, KeyError("typo"), np.zeros(2)])
def test_a_scorer_that_gives_no_number_breaks_the_episode(research_env, odd):
    def values(messages, answer):
        if len(messages) <= 3:
            return -1.0
        if isinstance(odd, Exception):
            raise odd
        return odd

    env = InformationGainReward(research_env(), FakeScorer(values))
    env.reset(seed=0)
    visit = render_turn("a", Visit(("https://e.org",), "x"))
    observation, reward, terminated, truncated, info = env.step(visit)
    assert (observation, reward, terminated, truncated) == ("", 0.0, False, True)
    assert info["ending"] == "broken"
    assert "scorer" in info["error"]


@pytest.mark.parametrize("scalar", [np.float32(-0.5), np.float64(-0.5), np.array(-0.5), -0.5])
def test_a_scorers_scalar_is_a_number_whoever_made_it(research_env, scalar):
    env = InformationGainReward(
        research_env(), FakeScorer(lambda messages, answer: -1 if len(messages) <= 3 else scalar)
    )
    env.reset(seed=0)
    info = env.step(render_turn("a", Visit(("https://e.org",), "x")))[4]
    assert info["turn_reward"].information_gain == 0.5


def test_a_scorer_that_is_wrong_is_a_bug_and_shows(research_env):
    def values(messages, answer):
        raise KeyError("typo")

    with pytest.raises(KeyError, match="typo"):
        InformationGainReward(research_env(), FakeScorer(values)).reset(seed=0)
