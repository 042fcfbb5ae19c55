"""What the command line reaches of what Python can do, with a scripted server that plays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drv_env.task_files import read_tasks
from drv_env.tasks import Task
from drv_env.worlds import WorldRecipe, questions
from replay.store import read_trajectories
from tests.chat_server import ChatServer, Knowing
from trainers.cli import main
from trainers.world_questions import world_parts, worlds_named

TASKS = questions(WorldRecipe(3).build(), hops=(1,))[:4]


def at(server: ChatServer, *more: str) -> list[str]:
    """Options of a model behind the server."""
    return ["--model", "scripted", "--base-url", server.base_url, *more]


def line_of(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that an error is."""
    said = capsys.readouterr().err.strip()
    assert "\n" not in said, said
    return said


# ---- fields of requests ---------------------------------------------------------------------


def test_fields_are_left_out_and_the_limit_renamed() -> None:
    more = ["--omit-field", "top_k", "seed", "--max-tokens-field", "max_completion_tokens"]
    with ChatServer(Knowing(TASKS)) as server:
        assert main(["ask", TASKS[0].question, *at(server, "--world", "3", *more)]) == 0
    sent = server.requests[0]
    assert sent["max_completion_tokens"] > 0
    assert "temperature" in sent
    assert not {"max_tokens", "top_k", "seed"} & set(sent)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--omit-field", "temprature"], "--omit-field must be names among max_tokens"),
        (["--max-tokens-field", "max tokens"], "--max-tokens-field is the name of a field"),
        (["--engine", "vllm", "--omit-field", "seed"], "--omit-field goes with a server"),
    ],
)
def test_fields_that_can_not_work_are_one_line(
    more: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [] if "--engine" in more else ["--base-url", "http://127.0.0.1:9/v1"]
    assert main(["ask", "Who?", "--model", "m", *where, *more]) == 1
    assert says in line_of(capsys)


# ---- questions about worlds -----------------------------------------------------------------


def test_a_worlds_questions_are_written_as_tasks_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "q.jsonl"
    assert main(["world", "questions", "3", "--hops", "1", "4", "--out", str(file)]) == 0
    expected = {task.id: task for task in questions(WorldRecipe(3).build(), hops=(1, 4))}
    found = {task.id: task for task in read_tasks(file)}
    assert found == expected
    assert found[TASKS[0].id].metadata["path"] == TASKS[0].metadata["path"]
    assert main(["world", "questions", "3", "--out", str(file)]) == 1
    assert "--force" in line_of(capsys)
    assert main(["world", "questions", "3", "4", "--part", "test", "--questions", "6"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 6
    assert {json.loads(line)["world"] for line in printed} <= {"world-3", "world-4"}


def test_what_is_written_is_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "q.jsonl"
    drawn = ["--hops", "1", "--questions", "3", "--out", str(file)]
    assert main(["world", "questions", "3", *drawn]) == 0
    asked = list(read_tasks(file))
    with ChatServer(Knowing(asked, wrong=[asked[0].question])) as server:
        assert main(["eval", str(file), *at(server, "--world", "3"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["tasks"], told["success"]) == (3, pytest.approx(2 / 3))


def test_questions_that_name_their_worlds_are_asked_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "q.jsonl"
    drawn = ["--hops", "1", "--part", "test", "--questions", "2", "--out", str(file)]
    assert main(["world", "questions", "40", *drawn]) == 0
    with ChatServer(Knowing(list(read_tasks(file)))) as server:
        assert main(["eval", str(file), *at(server), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"]["worlds"] == [40]
    assert told["success"] == 1.0


@pytest.mark.parametrize(
    ("worlds", "named"),
    [
        (["world-7", "world-0", "world-7"], (0, 7)),
        (["world-7", None], ()),
        (["world-7", "mine"], ()),
        (["world-07"], ()),
        (["world-7-size500"], ()),
        ([], ()),
    ],
)
def test_only_whole_files_about_invented_worlds_name_them(
    worlds: list[str | None], named: tuple[int, ...]
) -> None:
    assert worlds_named([Task("Q?", ("A",), world=world) for world in worlds]) == named


@pytest.mark.parametrize("command", ["eval", "rollout"])
def test_hops_are_chosen_for_the_commands_that_play(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [task for part in world_parts([3], (4,)).values() for task in part]
    where = ["--world", "3", "--hops", "4", "--questions", "2", "--out", str(tmp_path / "out")]
    with ChatServer(Knowing(every)) as server:
        assert main([command, "world", *at(server, *where)]) == 0
    played = read_trajectories(tmp_path / "out" / "trajectories")
    assert [item.task.metadata["hops"] for item in played] == [4, 4]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["world", "questions"], "name the seed of a world"),
        (["world", "questions", "3", "--hops", "0"], "hops must be at least 1, got 0"),
        (["world", "questions", "3", "--hops", "1", "--questions", "9999"], "--questions must be"),
        (["world", "questions", "3", "--out", "q.csv"], "NAME.jsonl"),
        (["world", "pages"], "name the seed of a world"),
        (["eval", "q.jsonl", "--hops", "2"], "--hops goes with questions about a world"),
        (["eval", "q.jsonl", "--balanced", "True"], "--balanced goes with questions about a world"),
        (["eval", "world", "--hops", "0"], "hops must be at least 1, got 0"),
    ],
)
def test_what_can_not_be_asked_of_a_world_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
    assert main([*arguments, *(where if arguments[0] == "eval" else [])]) == 1
    assert says in line_of(capsys)
