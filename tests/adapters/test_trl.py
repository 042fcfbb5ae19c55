"""TRL's environment protocol, played by hand; needs no TRL."""

import inspect
from typing import Any

import pytest

import agents.adapters
from agents.adapters.trl import OVER, dataset_rows, environment_factory, outcome_reward
from drv_env import DeepResearchEnv
from drv_env.episode import Ending, Rules
from drv_env.errors import SettingError
from drv_env.game import Game
from drv_env.protocol import Search, Visit, observation_body, render_turn
from drv_env.testing import FakeTools
from drv_env.tools.base import SEARCH_SCHEMA, ToolSchema

TASKS = [("Capital of France?", "Paris")]
DOWN = {"search": OSError("connection reset")}


@pytest.fixture(autouse=True)
def _any_version(monkeypatch):
    monkeypatch.setattr(agents.adapters, "version", lambda name: "1.16.0")


def begin(game: Game, task: int = 0) -> Any:
    environment = environment_factory(game)()
    environment.reset(**dataset_rows(game)[task])
    return environment


def said(text: str, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text, **more}]


def reward(environment: Any, completion: list[dict[str, Any]]) -> float | None:
    (value,) = outcome_reward(environments=[environment], completions=[completion], prompts=[])
    return value


def test_observations_are_those_of_the_env(game):
    env = DeepResearchEnv(game.tasks, game.tools, rules=game.rules)
    env.reset(options={"task": game.tasks[1]})
    environment = begin(game, task=1)
    name = game.tasks[1].metadata["start"]
    assert environment.search(query=[name]) == observation_body(
        env.step(render_turn("", Search((name,))))[0]
    )
    url = "https://nowhere.example"
    assert environment.visit(url=[url], goal="x") == observation_body(
        env.step(render_turn("", Visit((url,), "x")))[0]
    )


def test_rows_open_with_the_episodes_messages(game):
    rows = dataset_rows(game)
    assert [row["task"] for row in rows] == [0, 1]
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]


@pytest.mark.parametrize(("answer", "outcome"), [("Paris", 1.0), ("Rome", 0.0)])
def test_the_turn_without_a_call_is_the_answer(answer, outcome):
    environment = begin(Game(TASKS, FakeTools()))
    turn = said(f"<answer>{answer}</answer>", reasoning_content="Known.")
    assert reward(environment, turn) == outcome
    assert environment.ending is Ending.ANSWERED
    assert environment.episode.turns[-1].well_formed
    assert reward(environment, turn) == outcome  # asked again, the same


@pytest.mark.parametrize(
    "completion",
    [
        said("I stop here."),
        said("<answer>Paris</answer>"),  # no thought: unreadable, as in the env
        said("", tool_calls=[{"function": {"name": "search", "arguments": {"query": ["x"]}}}]),
        [{"role": "tool", "content": "[]"}],
    ],
)
def test_a_rollout_that_just_stops_gave_no_answer(completion):
    tools = FakeTools()
    environment = begin(Game(TASKS, tools))
    assert reward(environment, completion) == 0.0
    assert environment.ending is Ending.NO_ANSWER
    assert not tools.calls  # nothing is carried out after the host has stopped


def test_tools_that_are_down_give_no_reward_at_all():
    environment = begin(Game(TASKS, FakeTools(DOWN)))
    shown = [environment.search(query=["x"]) for _ in range(4)]
    assert "connection reset" in shown[0]
    assert shown[2:] == [OVER, OVER]
    assert environment.ending is Ending.BROKEN
    assert reward(environment, said("<think>x</think><answer>Paris</answer>")) is None


def test_a_lost_judge_gives_no_reward_and_its_group_keeps_theirs():
    def judge(answer, task):
        if answer == "?":
            raise OSError("judge down")
        return 1.0

    game = Game(TASKS, FakeTools(), outcome=judge)
    seen: list[tuple[str, float]] = []
    rewards = outcome_reward(
        environments=[begin(game), begin(game), object()],
        completions=[said(f"<think>x</think><answer>{text}</answer>") for text in "?!!"],
        log_metric=lambda name, value: seen.append((name, value)),
    )
    assert rewards == [None, 1.0, None]
    assert [value for name, value in seen if name == "episodes/broken"] == [1.0, 0.0]


def test_a_spent_budget_asks_for_the_answer_and_takes_one_more_turn():
    game = Game(TASKS, FakeTools(), rules=Rules(max_turns=1))
    environment = begin(game)
    assert "final answer" in environment.search(query=["x"])
    assert reward(environment, said("<think>x</think><answer>Paris</answer>")) == 1.0
    assert environment.ending is Ending.FORCED_TURNS
    environment = begin(game)
    environment.search(query=["x"])
    assert environment.search(query=["y"]) == OVER
    assert reward(environment, said("<think>x</think><answer>Paris</answer>")) == 0.0


def test_arguments_are_checked_as_in_the_env():
    environment = begin(Game(TASKS, FakeTools()))
    assert "goal" in environment.visit(url=["https://a"])
    assert "not carried out" in environment.search(query=[" "])


def test_a_users_own_tool_is_a_method_with_its_schema():
    properties = {
        "code": {"type": "string", "description": "What\nto run."},
        "limits": {"type": "array", "items": {"type": "number"}},
        "extra": {"type": ["string", "null"]},
    }
    parameters = {"type": "object", "properties": properties, "required": ["code"]}
    schema = ToolSchema("python", "Run code.", parameters)
    tools = FakeTools({"python": "42"}, schemas=[SEARCH_SCHEMA, schema])
    environment = begin(Game(TASKS, tools))
    assert environment.python(code="6 * 7") == "42"
    signature = inspect.signature(environment.python)
    assert [item.annotation for item in signature.parameters.values()] == [str, list[float], Any]
    assert signature.parameters["code"].default is inspect.Parameter.empty
    assert "code: What to run." in inspect.getdoc(environment.python)


@pytest.mark.parametrize("name", ["reset", "get_reward", "my-tool", "_hidden"])
def test_a_tool_that_cannot_be_a_method_is_refused(name):
    schema = ToolSchema(name, "x", {"type": "object", "properties": {}})
    with pytest.raises(SettingError, match=name):
        environment_factory(Game(TASKS, FakeTools(schemas=[schema])))
