"""``drv ask``: what is shown and told, with a scripted server and a small real model."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from agents.research import question_task
from drv_env.protocol import Answer, Search, Visit, render_search, render_turn
from drv_env.testing import FakeTools
from drv_env.tools.base import Call
from drv_env.tools.cassette import CassetteTools
from drv_env.worlds import WorldRecipe, questions
from replay.store import read_trajectories
from tests.chat_server import ChatServer, Knowing
from tests.patience import HANGS
from tests.small_agent import save_small_agent
from trainers.cli import main

TASK = questions(WorldRecipe(3).build(), hops=(1,))[0]
START = TASK.metadata["start"]


def asking(server, *more, question=TASK.question):
    where = ("--model", "scripted", "--base-url", server.base_url, "--world", "3")
    return ["ask", question, *where, *more]


def test_thoughts_calls_findings_answer_and_sources_are_shown(capsys):
    with ChatServer(Knowing([TASK])) as server:
        assert main(asking(server)) == 0
    shown = capsys.readouterr().out
    url = next(line for line in shown.splitlines() if START in line and "http" in line).split()[-1]
    order = [
        f"1. I look for {START}.",
        f"→ search {START}",
        f"{START}  {url}",
        "2. I open its page.",
        f"→ visit {url} for: what it says",
        TASK.answers[0],
        "3. The page says",
        "Sources",
        url,
        "3 turns · 30 tokens",
    ]
    at = [shown.find(text) for text in order]
    assert -1 not in at, (order, shown)
    assert "\x1b" not in shown, "output that is piped has no colours"
    last = [shown.rfind(text) for text in order]
    assert last[-2] < last[-1]


@pytest.mark.parametrize(
    ("more", "gaps"), [((), 0), (("--whole-pages",), 0), (("--evidence-words", "4"), 1)]
)
def test_as_much_of_a_page_is_shown_as_is_asked_for(tmp_path, capsys, more, gaps):
    file = tmp_path / "asked.parquet"
    with ChatServer(Knowing([TASK])) as server:
        assert main(asking(server, "--save", str(file), *more)) == 0
    (trajectory,) = read_trajectories(file)
    page = WorldRecipe(3).build().pages[f"https://w/{START}"].text
    seen = trajectory.turns[1].observation
    assert (page in seen) == (not gaps)
    assert ("…" in seen) == bool(gaps)


def test_json_is_one_object_and_nothing_else(tmp_path, capsys):
    file = tmp_path / "asked.parquet"
    with ChatServer(Knowing([TASK])) as server:
        assert main(asking(server, "--json", "--save", str(file), "--seed", "5")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["answer"] == TASK.answers[0]
    assert told["ending"] == "answered"
    assert (told["turns"], told["tokens"], told["cost"]) == (3, 30, 0)
    assert told["error"] is None
    assert [source["title"] for source in told["sources"]] == [START]
    assert told["provenance"]["seed"] == 5
    (stored,) = read_trajectories(file)
    assert stored.outcome is None, "nobody knows whether an answer to a question is right"
    assert stored.answer == told["answer"]


def test_what_is_read_is_never_written_over_even_by_force(tmp_path, capsys):
    model = save_small_agent(tmp_path / "model")
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Be brief.")
    before = {path: path.read_bytes() for path in model.iterdir()}
    ask = ["ask", "Who?", "--model", str(model), "--world", "3", "--system-prompt", str(prompt)]
    for place in (model / "model.safetensors", model / "new.parquet", prompt):
        assert main([*ask, "--save", str(place), "--force"]) == 1
        assert "the input" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in model.iterdir()} == before
    assert prompt.read_text() == "Be brief."


def test_what_was_malformed_and_what_failed_is_shown(capsys):
    turns = [
        "no thought at all",
        render_turn("There.", Visit(("https://w/nowhere",), "x")),
        render_turn("Nothing.", Search(("zzzz",))),
        render_turn("Given up.", Answer("I do not know")),
    ]

    def policy(messages):
        return turns[sum(item["role"] == "assistant" for item in messages)]

    with ChatServer(policy) as server:
        assert main(asking(server)) == 0
    shown = capsys.readouterr().out
    assert "malformed: This turn could not be read" in shown
    assert "nothing was read there" in shown
    assert "Nothing was found" in shown
    assert "I do not know" in shown
    assert "Sources" not in shown


def test_what_the_model_wrote_is_shown_where_nothing_can_be_read(capsys):
    def policy(messages):
        return f"I would say\n\x1b[1m<answer>{TASK.answers[0]}</answer>"

    with ChatServer(policy) as server:
        assert main(asking(server)) == 0
        shown = capsys.readouterr().out
        assert main(asking(server, "--json", "--max-unreadable", "2")) == 0
        told = json.loads(capsys.readouterr().out)
        assert main(asking(server, "--json", "--reading", "thought_optional")) == 0
        read = json.loads(capsys.readouterr().out)
    assert shown.count("    \\x1b[1m<answer>") == 6
    assert "6. (unreadable)" in shown
    assert "malformed: This turn could not be read" in shown
    assert "No answer was given (forced_unreadable)." in shown
    assert "--reading thought_optional" in shown
    assert (told["ending"], told["answer"], told["turns"]) == ("forced_unreadable", None, 3)
    assert [turn["problem"] for turn in told["unread"]] == ["no_thought"] * 3
    assert (read["answer"], read["ending"], read["turns"]) == (TASK.answers[0], "answered", 1)
    assert (read["unread"], read["hint"]) == ([], None)


def test_a_page_or_a_model_cannot_move_the_cursor(capsys):
    def policy(messages):
        return render_turn("\x1b[2J[bold]red[/bold]", Answer("\x1b]0;title\x07X"))

    with ChatServer(policy) as server:
        assert main(asking(server)) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\\x1b[2J[bold]red[/bold]" in shown


def test_a_broken_episode_exits_with_its_reason(tmp_path, capsys):
    file = tmp_path / "asked.parquet"
    with ChatServer(Knowing([TASK], lost=[TASK.question])) as server:
        assert main(asking(server, "--json", "--save", str(file))) == 1
    said = capsys.readouterr()
    assert "the episode broke" in said.err
    assert "gone fishing" in said.err
    assert "gone fishing" in json.loads(said.out)["error"]
    (stored,) = read_trajectories(file)
    assert stored.broken


def test_a_small_model_is_asked_in_the_world_it_was_trained_in(tmp_path, capsys):
    folder = save_small_agent(tmp_path / "checkpoint")
    assert main(["ask", TASK.question, "--model", str(folder), "--seed", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["error"] is None
    assert 1 <= told["turns"] <= 4
    assert told["tokens"] <= 4 * 16


def test_ctrl_c_closes_everything_and_says_little():
    with ChatServer(Knowing([TASK]), hold=2) as server:
        arguments = [sys.executable, "-m", "trainers.cli", *asking(server)]
        running = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert server.reached.wait(HANGS)
        os.kill(running.pid, signal.SIGINT)
        shown, said = running.communicate(timeout=HANGS)
    assert running.returncode == 130
    assert f"→ search {START}" in shown
    assert said.strip() == "Stopped."


def test_recorded_calls_answer_without_keys(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("SERPER_KEY_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    task = question_task("Who owns the mill?")
    hits = render_search([("mill", [{"title": "The mill", "url": "https://e.org/mill"}])])

    async def record():
        tools = CassetteTools(FakeTools({"search": hits}), tmp_path / "calls.cassette")
        await tools.call(Call(Search(("mill",)), task))
        await tools.close()

    asyncio.run(record())
    turns = [
        render_turn("I search.", Search(("mill",))),
        render_turn("Another.", Search(("owner",))),
        render_turn("That was it.", Answer("nobody")),
    ]

    def policy(messages):
        return turns[sum(item["role"] == "assistant" for item in messages)]

    with ChatServer(policy) as server:
        where = ("--model", "scripted", "--base-url", server.base_url)
        more = ("--cassette", "calls.cassette", "--cassette-only")
        assert main(["ask", task.question, *where, *more]) == 0
    shown = capsys.readouterr().out
    assert "The mill  https://e.org/mill" in shown
    assert "failed: The search call failed" in shown
    assert "not recorded" in shown


def test_the_key_is_sent_and_never_shown(capsys, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-very-secret-key")

    def policy(messages):
        raise ValueError("the key sk-very-secret-key has no credit")

    with ChatServer(policy) as server:
        assert main(asking(server, "--api-key-env", "MY_KEY")) == 1
        assert server.headers[0]["Authorization"] == "Bearer sk-very-secret-key"
    said = capsys.readouterr()
    assert "sk-very-secret-key" not in said.out + said.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ("--tools", "live"),
            "invented webs (--world), recorded ones (--web) and pages of your own (--pages)",
        ),
        (("--cassette-only",), "--cassette-only needs --cassette"),
        (("--evidence-words", "0"), "evidence-words"),
        (("--evidence-words", "9", "--whole-pages"), "exclude each other"),
        (("--tools", "recorded"), "needs --web"),
        (("--web", "no/such/web"), "no finished recorded web"),
        (("--world", "1", "2"), "give --world one seed"),
        (("--system-prompt", "none.txt"), "none.txt"),
        (("--tokenizer", "none"), "no tokenizer.json"),
        (("--cassette", "none", "--cassette-only"), "none"),
    ],
)
def test_what_is_missing_is_named(tmp_path, capsys, monkeypatch, more, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SERPER_KEY_ID", raising=False)
    with ChatServer(Knowing([TASK])) as server:
        arguments = ["ask", "Who?", "--model", "m", "--base-url", server.base_url, *more]
        assert main(arguments) == 1
        assert server.requests == []
    assert said in capsys.readouterr().err
