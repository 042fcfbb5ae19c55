"""``drv rollout``: whole runs against a scripted chat server; going on after Ctrl-C and a kill."""

import json
import os
import signal
import subprocess
import sys

import pytest

from drv_env.worlds import WorldRecipe, questions
from replay.store import read_trajectories
from tests.chat_server import ChatServer, Knowing
from tests.patience import HANGS
from trainers.cli import main

TASKS = questions(WorldRecipe(3).build(), hops=(1,))[:4]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tasks.jsonl"
    rows = [
        {"question": task.question, "answer": task.answers[0], "world": task.world}
        for task in TASKS
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def command(file, out, server, *more):
    return [
        "rollout",
        str(file),
        "--out",
        str(out),
        "--model",
        "scripted",
        "--base-url",
        server.base_url,
        "--world",
        "3",
        "--group-size",
        "2",
        *more,
    ]


def places(folder):
    if not any((folder / "trajectories").glob("part-*.parquet")):
        return []
    stored = read_trajectories(folder / "trajectories")
    return [(item.provenance["task"], item.provenance["sample"]) for item in stored]


ALL = [(task, sample) for task in range(4) for sample in range(2)]


def test_every_episode_is_kept_and_summed_up(file, tmp_path, capsys):
    out = tmp_path / "out"
    with ChatServer(Knowing(TASKS, wrong=[TASKS[0].question])) as server:
        assert main(command(file, out, server)) == 0
    said = capsys.readouterr()
    assert "75.0%" in said.out
    assert "visit ratio" in said.out
    assert "8/8 episodes over" in said.err
    assert sorted(places(out)) == ALL
    item = next(iter(read_trajectories(out / "trajectories")))
    assert item.provenance["model"] == "scripted"
    assert [turn.tool for turn in item.turns] == ["search", "visit", None]
    sent = server.requests[0]
    assert sent["temperature"] == 1.0
    assert sent["top_p"] == 0.95
    assert sent["top_k"] == 20
    assert sent["presence_penalty"] == 1.1
    assert sent["stop"] == ["<tool_response>"]
    assert sent["max_tokens"] == 8192


def test_a_folder_that_is_whole_asks_nobody(file, tmp_path, capsys):
    out = tmp_path / "out"
    with ChatServer(Knowing(TASKS)) as server:
        assert main(command(file, out, server)) == 0
        asked = len(server.requests)
        first = capsys.readouterr().out
        assert main(command(file, out, server)) == 0
        assert len(server.requests) == asked
        assert "100.0%" in first
        assert "100.0%" in capsys.readouterr().out


def test_another_setting_is_refused_by_name(file, tmp_path, capsys):
    out = tmp_path / "out"
    with ChatServer(Knowing(TASKS)) as server:
        assert main(command(file, out, server)) == 0
        capsys.readouterr()
        assert main(command(file, out, server, "--temperature", "0.5")) == 1
    said = capsys.readouterr().err
    assert "another temperature (temperature was 1.0, is 0.5)" in said


def test_broken_episodes_are_told_and_played_again_by_the_next_run(file, tmp_path, capsys):
    out = tmp_path / "out"
    with ChatServer(Knowing(TASKS, lost=[TASKS[1].question])) as server:
        assert main(command(file, out, server, "--retries", "0")) == 0
    said = capsys.readouterr()
    assert "broken, 2 times" in said.err
    assert "gone fishing" in said.err
    assert "100.0%" in said.out
    assert len(places(out)) == 6
    with ChatServer(Knowing(TASKS)) as server:
        again = command(file, out, server, "--retries", "0")
        assert main(again) == 0
        assert {body["messages"][1]["content"] for body in server.requests} == {TASKS[1].question}
    assert sorted(places(out)) == ALL


def test_when_all_break_the_reason_is_told(file, tmp_path, capsys):
    lost = [task.question for task in TASKS]
    with ChatServer(Knowing(TASKS, lost=lost)) as server:
        assert main(command(file, tmp_path / "out", server, "--retries", "0")) == 1
    said = capsys.readouterr().err
    assert "all 8 episodes broke" in said
    assert "gone fishing" in said


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_stopped_goes_on_where_it_was(file, tmp_path, how):
    out = tmp_path / "out"
    more = ("--parallel", "1", "--flush-seconds", "0")
    with ChatServer(Knowing(TASKS), hold=20) as server:  # within the seventh episode
        arguments = [sys.executable, "-m", "trainers.cli", *command(file, out, server, *more)]
        running = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
        assert server.reached.wait(HANGS)
        os.kill(running.pid, how)
        _, said = running.communicate(timeout=HANGS)
    if how == signal.SIGINT:
        assert running.returncode == 130
        assert "the same command goes on" in said
        assert "Traceback" not in said
        assert "never retrieved" not in said
        assert places(out) == ALL[:6]
    else:  # a part that was being written is lost
        assert running.returncode == -signal.SIGKILL
        assert places(out) == ALL[: len(places(out))]
    kept = len(places(out))
    with ChatServer(Knowing(TASKS)) as server:
        # another port is another place to ask, and no other rollout
        assert main(command(file, out, server, *more)) == 0
        assert len(server.requests) == (8 - kept) * 3
    assert sorted(places(out)) == ALL


def test_bad_rows_are_told_and_left_out(file, tmp_path, capsys):
    with file.open("a") as lines:
        lines.write('{"question": "", "answer": "x"}\n')
    with ChatServer(Knowing(TASKS)) as server:
        assert main(command(file, tmp_path / "out", server)) == 0
    assert "left out:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--group-size", "0"), "--group-size must be at least 1"),
        (("--parallel", "0"), "--parallel must be at least 1"),
        (("--questions", "9"), "--questions must be from 1 to the 4"),
        (("--part", "test"), "--part goes with questions about a world"),
        (("--web", "x"), "--world goes with --tools offline, not recorded"),
        (("--tools", "recorded"), "--world goes with --tools offline"),
        (("--max-context", "1000"), "add --tokenizer"),
        (("--engine", "openai-ids"), "--tokenizer"),
        (("--api-key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY, which --api-key-env names, is not set"),
        (("--world", "4"), "world-3"),
        (("--greedy", "--temperature", "1"), "--greedy is temperature 0"),
    ],
)
def test_what_cannot_work_is_named_before_anything_is_asked(file, tmp_path, capsys, more, said):
    with ChatServer(Knowing(TASKS)) as server:
        assert main(command(file, tmp_path / "out", server, *more)) == 1
        assert server.requests == []
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_an_output_that_is_a_file_is_refused(file, capsys):
    with ChatServer(Knowing(TASKS)) as server:
        assert main(command(file, file, server)) == 1
    assert "is a file" in capsys.readouterr().err


def test_a_model_that_writes_no_thought_is_told_of_and_plays_by_the_rule_for_it(
    file, tmp_path, capsys
):
    answers = {task.question: task.answers[0] for task in TASKS}

    def policy(messages):
        (question,) = {message["content"] for message in messages} & answers.keys()
        return f"<answer>{answers[question]}</answer>"

    unread = "8 of 8 episodes ended because nothing could be read"
    for more, ending in (
        ((), "forced_unreadable"),
        (("--reading", "thought_optional"), "answered"),
    ):
        out = tmp_path / ending
        with ChatServer(policy) as server:
            assert main(command(file, out, server, *more)) == 0
        said = capsys.readouterr().err
        stored = list(read_trajectories(out / "trajectories"))
        assert {str(item.ending) for item in stored} == {ending}
        assert {item.outcome for item in stored} == {1.0 if more else 0.0}
        assert (unread in said) == (not more)
        assert ("--reading thought_optional is for" in said) == (not more)


def test_turns_without_a_call_or_an_answer_are_told_of_as_that(file, tmp_path, capsys):
    with ChatServer(lambda messages: "<think>\nI go on and on") as server:
        assert main(command(file, tmp_path / "out", server)) == 0
    said = capsys.readouterr().err
    assert "--max-turn-tokens is for turns that are cut off" in said
    assert "thought_optional" not in said
