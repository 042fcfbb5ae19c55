"""What the command line reaches of what Python can do, with a scripted server that plays."""

from __future__ import annotations

import pytest

from drv_env.worlds import WorldRecipe, questions
from tests.chat_server import ChatServer, Knowing
from trainers.cli import main

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
