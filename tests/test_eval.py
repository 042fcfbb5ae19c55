"""``drv eval``: a small real model by its agent.json, and a scripted server."""

import json

import pytest

from drv_env.errors import SettingError
from drv_env.worlds import WorldRecipe, questions
from replay.store import read_trajectories
from tests.chat_server import ChatServer, Knowing
from tests.small_agent import save_small_agent
from trainers.agent_file import agent_of, checked_agent, read_agent, write_agent
from trainers.cli import main
from trainers.commands.agent_options import AgentOptions, ModelOptions, RuleOptions
from trainers.commands.agent_setup import plan_agent

TASKS = questions(WorldRecipe(3).build(), hops=(1,))[:4]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_small_agent(tmp_path_factory.mktemp("run") / "checkpoint")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tasks.jsonl"
    rows = [
        {"question": task.question, "answer": task.answers[0], "world": task.world}
        for task in TASKS
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def served(file, server, *more):
    where = ("--model", "scripted", "--base-url", server.base_url, "--world", "3")
    return ["eval", str(file), *where, *more]


def test_a_checkpoint_plays_as_it_was_trained(checkpoint, capsys):
    arguments = ["eval", "world", "--model", str(checkpoint), "--questions", "5", "--samples", "2"]
    assert main([*arguments, "--json"]) == 0
    said = capsys.readouterr()
    assert "agent.json: the model plays as it was trained" in said.err
    told = json.loads(said.out)
    assert (told["source"], told["samples"]) == ("world", 2)
    assert (told["tasks"], told["episodes"], told["broken"]) == (5, 10, 0)
    assert set(told["pass_at"]) == {"1", "2"}
    assert told["turns"] <= 4
    assert told["turn_tokens"] <= 4 * 16
    settings = told["settings"]
    assert settings["worlds"] == [3]
    assert (settings["presence_penalty"], settings["stop"]) == (0.0, [])
    assert (settings["max_context"], settings["system_prompt"]) == (512, "")


def test_the_same_seed_gives_the_same_figures_and_options_win(checkpoint, capsys):
    arguments = ["eval", "world", "--model", str(checkpoint), "--questions", "4", "--json"]
    found = []
    for more in ([], [], ["--max-turns", "1", "--greedy"]):
        assert main([*arguments, *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert found[2]["settings"]["max_turns"] == 1
    assert found[2]["settings"]["temperature"] == 0.0
    assert found[2]["turns"] <= 2


def test_the_forced_turn_counts_where_an_option_says_so_and_goes_into_agent_json(checkpoint):
    plans = [
        plan_agent(
            AgentOptions(
                model=ModelOptions(model=str(checkpoint)),
                rules=RuleOptions(max_turns=3, count_forced_turn=counted),
            ),
            lambda line: None,
        )
        for counted in (None, True)
    ]
    assert [plan.rules(()).tool_turns for plan in plans] == [3, 2]
    told = [checked_agent(agent_of(plan.bounds, plan.sampling))["rules"] for plan in plans]
    assert "count_forced_turn" not in told[0]
    assert told[1]["count_forced_turn"] is True
    with pytest.raises(SettingError, match="count_forced_turn can't be 1"):
        checked_agent({"rules": {"count_forced_turn": 1}})


@pytest.mark.parametrize(
    ("given", "unreadable"), [({}, 5), ({"max_unreadable": 2}, 2), ({"max_unreadable": 0}, None)]
)
def test_the_bound_on_unreadable_turns_and_the_reading_go_into_agent_json(
    checkpoint, tmp_path, given, unreadable
):
    import shutil

    options = RuleOptions(reading="thought_optional", **given)
    folders = [checkpoint, shutil.copytree(checkpoint, tmp_path / "again")]
    for folder, own in zip(folders, (options, RuleOptions()), strict=True):
        agent = AgentOptions(model=ModelOptions(model=str(folder)), rules=own)
        plan = plan_agent(agent, lambda line: None)
        rules = plan.rules(())
        assert (rules.max_unreadable, rules.reading) == (unreadable, "thought_optional")
        write_agent(folders[1], agent_of(plan.bounds, plan.sampling))
    told = read_agent(folders[1])["rules"]
    assert told["reading"] == "thought_optional"
    assert told.get("max_unreadable", 5) == unreadable
    for wrong in ({"max_unreadable": 0}, {"max_unreadable": "5"}, {"reading": "loose"}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            checked_agent({"rules": wrong})


def test_without_agent_json_the_usual_settings_fit_the_model(checkpoint, tmp_path, capsys):
    import shutil

    bare = shutil.copytree(checkpoint, tmp_path / "bare")
    (bare / "agent.json").unlink()
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Search.")
    arguments = ["eval", "world", "--model", str(bare), "--questions", "2", "--max-turns", "1"]
    assert main([*arguments, "--system-prompt", str(prompt), "--json"]) == 0
    said = capsys.readouterr()
    assert "the model holds 512 tokens of context" in said.err
    settings = json.loads(said.out)["settings"]
    assert settings["max_context"] == 512
    assert settings["max_turn_tokens"] == 128
    assert settings["presence_penalty"] == 1.1
    assert settings["stop"] == ["<tool_response>"]
    assert settings["system_prompt"] == "Search."


def test_accuracy_intervals_and_visit_ratios_are_those_of_the_episodes(file, tmp_path, capsys):
    out = tmp_path / "out"
    with ChatServer(Knowing(TASKS, wrong=[TASKS[2].question])) as server:
        arguments = served(file, server, "--samples", "2", "--out", str(out), "--json")
        assert main(arguments) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["success"] == 0.75
        assert told["pass_at"] == {"1": 0.75, "2": 0.75}
        assert told["endings"] == {"answered": 8}
        assert told["visit_ratio_wrong"] == 0.5
        assert json.loads((out / "eval.json").read_text()) == told
        assert len(list(read_trajectories(out / "trajectories"))) == 8
        asked = len(server.requests)
        assert main(arguments) == 0  # it goes on, with nothing left to do
        assert len(server.requests) == asked
    assert json.loads(capsys.readouterr().out)["success"] == 0.75


def test_a_table_by_default_and_nothing_is_kept(file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with ChatServer(Knowing(TASKS)) as server:
        assert main(served(file, server)) == 0
    said = capsys.readouterr().out
    assert "accuracy" in said
    assert "100.0%" in said
    assert sorted(tmp_path.rglob("*")) == before


def test_broken_episodes_are_run_again_and_never_count_as_wrong(file, capsys):
    class Unsteady(Knowing):
        """Fails at the first turn of each question, twice."""

        def __call__(self, messages):
            question = messages[1]["content"]
            self.fails[question] = self.fails.get(question, 0) + 1
            if self.fails[question] <= (2 if question != TASKS[3].question else 99):
                raise ValueError("out of memory")
            return super().__call__(messages)

    policy = Unsteady(TASKS)
    policy.fails = {}
    with ChatServer(policy) as server:
        assert main(served(file, server, "--json")) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told["success"] == 1.0
    assert (told["episodes"], told["tasks"], told["broken"]) == (3, 3, 1)
    assert told["endings"] == {"answered": 3, "broken": 1}
    (reason,) = told["reasons"]
    assert "out of memory" in reason
    assert "6 tried again" in said.err or "8 tried again" in said.err


def test_when_all_break_there_is_no_figure_but_a_reason(file, capsys):
    with ChatServer(Knowing(TASKS, lost=[task.question for task in TASKS])) as server:
        assert main(served(file, server, "--retries", "0", "--json")) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "all 4 episodes broke" in said.err


def test_columns_of_questions_are_found_or_named(tmp_path, capsys):
    rows = [
        {"Frage": task.question, "Loesung": [[task.answers[0]]], "Nr": n, "world": task.world}
        for n, task in enumerate(TASKS[:2])
    ]
    path = tmp_path / "fragen.json"
    path.write_text(json.dumps(rows))
    with ChatServer(Knowing(TASKS)) as server:
        assert main(served(path, server)) == 1
        said = capsys.readouterr().err
        assert "--question-column" in said
        assert said.count("the row has: Frage, Loesung, Nr, world") == 1
        named = ("--question-column", "frage", "--answer-column", "loesung", "--id-column", "nr")
        assert main(served(path, server, *named, "--json")) == 0
        told = json.loads(capsys.readouterr().out)
        assert main(served("world", server, "--question-column", "frage")) == 1
    assert (told["tasks"], told["success"]) == (2, 1.0)
    assert "--question-column goes with a file" in capsys.readouterr().err


def test_a_recorded_web_is_played_in(file, tmp_path, capsys):
    out, web = tmp_path / "out", tmp_path / "web"
    with ChatServer(Knowing(TASKS)) as server:
        assert main(served(file, server, "--out", str(out))) == 0
        assert main(["data", "web", str(out / "trajectories"), "--out", str(web)]) == 0
        capsys.readouterr()
        where = ("--model", "scripted", "--base-url", server.base_url)
        assert main(["eval", str(file), *where, "--web", str(web), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["success"] == 1.0
    assert told["settings"]["tools"] == "recorded"


def test_tasks_of_a_world_need_offline_tools(checkpoint, capsys):
    arguments = ["eval", "world", "--model", str(checkpoint), "--tools", "live"]
    assert main(arguments) == 1
    assert "need --tools offline" in capsys.readouterr().err


def test_what_is_missing_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "world", "--model", "no/such/folder"]) == 1
    assert "--model no/such/folder: no such folder" in capsys.readouterr().err
    assert main(["eval", "tasks.jsonl", "--model", "m", "--base-url", "http://127.0.0.1:9"]) == 1
    assert "tasks.jsonl" in capsys.readouterr().err
    assert main(["eval", "world", "--model", "m", "--engine", "openai"]) == 1
    assert "needs --base-url" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1"),
        ('{"speed": {}}', "the file has 'speed'"),
        ('{"rules": {"max_turn": 3}}', "rules has 'max_turn'"),
        ('{"rules": {"max_turns": "3"}}', "rules.max_turns can't be '3'"),
        ('{"rules": {"max_turns": 0}}', "max_turns must be at least 1"),
        ('{"sampling": {"top_p": 2.0}}', "top_p"),
        ('{"offline": {"fields": ["title"]}}', "fields"),
        ('{"offline": {"worlds": ["a"]}}', "offline.worlds"),
        ("[1]", "must be an object"),
    ],
)
def test_a_damaged_agent_json_is_named(tmp_path, text, said):
    (tmp_path / "agent.json").write_text(text)
    with pytest.raises(SettingError) as raised:
        read_agent(tmp_path)
    assert str(tmp_path / "agent.json") in str(raised.value)
    assert said in str(raised.value)
