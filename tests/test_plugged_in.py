"""Own pages, tools, outcomes and scorers by name, on every command that plays."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drv_env.errors import SettingError
from drv_env.protocol import Answer, Search, ToolCall, Visit, render_turn
from drv_env.task_files import read_tasks
from drv_env.tools.base import Call
from replay.store import read_trajectories
from replay.template import ChatTemplate
from tests.chat_server import ChatServer
from tests.small_agent import save_small_agent
from tests.trainers.decided_engine import play_decided
from trainers.cli import main
from trainers.plugins import (
    OUTCOMES,
    SCORERS,
    TOOLS,
    outcome_of,
    scorer_of,
    tools_of,
    user_tools_of,
)
from trainers.registry import ADVANTAGES, Registry, import_plugins
from trainers.runs.trainer_registry import TRAINERS

PAIR = QUESTION, GOLD = "Who owns the mill?", "Salen"
MODULE = '''
import os
from drv_env.tools import ToolResult, ToolSchema
from drv_env.tools.layers import tool
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import Page
from trainers.plugins import OUTCOMES
from trainers.registry import ADVANTAGES

PARAMETERS = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


async def measure(word: str) -> str:
    return f"{word} has {len(word)} letters"


ruler = tool(ToolSchema("ruler", "Counts letters.", PARAMETERS), measure)
rulers = [ruler]


def web():
    return OfflineTools.from_pages([Page("https://e.org/mill", "Mill", "Its owner is Salen.")])


def half(answer, task):
    return 0.5


async def waits(answer, task):
    return 0.25


class Length:
    """Made without arguments; closed when the command is over."""

    def __call__(self, answer, task):
        return 1.0 if len(answer) == len(task.answers[0]) else 0.0

    async def close(self):
        open(os.environ["CLOSED"], "w").write("yes")


class Scorer:
    def score(self, messages, answer, transcript=None):
        return -4.0 + len(messages)


def broken():
    raise OSError("no such service")


number = 7


@OUTCOMES.register("third")
def third(answer, task):
    return 1 / 3


class inner:
    half = staticmethod(half)
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of the user's own, some pages and a question."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "mill.md").write_text("# The mill\n\nIts owner is Salen.\n")
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "mill.md").write_text("# The mill\n\nIts owner is Salen.\n")
    (folder / "inn.txt").write_text("The inn is shut.")
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": QUESTION, "answer": GOLD}) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("CLOSED", str(tmp_path / "closed"))
    before = dict(OUTCOMES._things)
    yield tmp_path
    OUTCOMES._things.clear()
    OUTCOMES._things.update(before)
    sys.modules.pop("mine", None)


def plays(messages: list[dict[str, str]]) -> str:
    """Searches, opens what it finds, measures where it can, and answers."""
    turn = sum(item["role"] == "assistant" for item in messages)
    said = "".join(item["content"] for item in messages)
    ruler = '"name": "ruler"' in messages[0]["content"]
    url = "mill.md" if "mill.md" in said else "https://e.org/mill"
    plan = [
        render_turn("I search.", Search(("mill",))),
        render_turn("I open it.", Visit((url,), "owner")),
        *([render_turn("I measure.", ToolCall("ruler", {"word": "Salen"}))] if ruler else []),
        render_turn("Known.", Answer(GOLD)),
    ]
    return plan[turn]


def run(*arguments: str, out: Path | None = None) -> int:
    with ChatServer(plays) as server:
        where = ["--model", "m", "--base-url", server.base_url]
        return main([*arguments, *where, *(["--out", str(out)] if out else [])])


def played(out: Path) -> Any:
    (found,) = read_trajectories(out / "trajectories")
    return found


def line_of(capsys: pytest.CaptureFixture[str]) -> str:
    """The last line of what is told: an error is one."""
    return capsys.readouterr().err.strip().splitlines()[-1]


# ---- pages ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["eval", "rollout"])
@pytest.mark.parametrize("pages", ["pages", "pages/mill.md"])
def test_pages_of_ones_own_are_searched_and_opened(here: Path, command: str, pages: str) -> None:
    assert run(command, "q.jsonl", "--pages", pages, out=here / "out") == 0
    found = played(here / "out")
    assert found.outcome == 1.0
    assert [turn.tool_status for turn in found.turns] == ["ok", "ok", None]
    assert "mill.md" in found.turns[0].observation
    assert "Salen" in found.turns[1].observation


def test_pages_that_were_changed_are_another_rollout(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("rollout", "q.jsonl", "--pages", "pages")
    assert run(*asked, out=here / "out") == 0
    assert run(*asked, out=here / "out") == 0  # the same once more
    (here / "pages" / "inn.txt").write_text("The inn is open again.")
    assert run(*asked, out=here / "out") == 1
    assert "holds a rollout with another pages_as" in line_of(capsys)


def test_a_question_is_asked_about_ones_own_pages(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("ask", QUESTION, "--pages", "pages", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["answer"] == GOLD
    assert [source["url"] for source in told["sources"]] == ["mill.md"]


# ---- tools ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mine:ruler", "mine:rulers"])
def test_a_tool_of_ones_own_stands_beside_the_others(here: Path, name: str) -> None:
    asked = ("eval", "q.jsonl", "--pages", "pages", "--own-tools", name)
    assert run(*asked, out=here / "out") == 0
    turn = played(here / "out").turns[2]
    assert (turn.tool, turn.tool_status) == ("ruler", "ok")
    assert turn.observation == "Salen has 5 letters"
    assert turn.well_formed


def test_the_examples_tool_is_had_by_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent / "examples")
    (calculate,) = user_tools_of("own_tool:CALCULATE")
    found = asyncio.run(calculate.call(Call(ToolCall("calculator", {"expression": "6*7"}), PAIR)))
    assert found.text == "42"


def test_whole_tools_of_ones_own(here: Path) -> None:
    assert run("eval", "q.jsonl", "--tools", "mine:web", out=here / "out") == 0
    assert "Salen" in played(here / "out").turns[1].observation
    assert [schema.name for schema in tools_of("mine:ruler").schemas] == ["ruler"]


# ---- outcomes and scorers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mine:half", 0.5),
        ("mine:waits", 0.25),
        ("mine:inner.half", 0.5),
        ("exact-cjk", 1.0),
        ("f1-cjk", 1.0),
        ("f1", 1.0),
    ],
)
def test_outcomes_by_name(here: Path, name: str, expected: float) -> None:
    assert run("eval", "q.jsonl", "--pages", "pages", "--outcome", name, out=here / "out") == 0
    assert played(here / "out").outcome == expected


def test_an_outcome_that_a_class_makes_is_closed(here: Path) -> None:
    asked = ("rollout", "q.jsonl", "--pages", "pages", "--outcome", "mine:Length")
    assert run(*asked, out=here / "out") == 0
    assert played(here / "out").outcome == 1.0
    assert (here / "closed").read_text() == "yes"


def test_an_outcome_that_a_plugin_registers(here: Path) -> None:
    more = ("--outcome", "third", "--plugins", "mine")
    assert run("eval", "q.jsonl", "--pages", "pages", *more, out=here / "out") == 0
    assert played(here / "out").outcome == pytest.approx(1 / 3)


def test_a_scorer_puts_gains_into_the_trajectories(here: Path) -> None:
    """By hand: -4 plus the number of messages; 2 before a turn, 6 after search and visit."""
    more = ("--scorer", "mine:Scorer")
    assert run("rollout", "q.jsonl", "--pages", "pages", *more, out=here / "out") == 0
    gains = [reward.information_gain for reward in played(here / "out").rewards]
    assert gains == [None, 4.0, None]


def test_the_scorer_of_a_models_folder(here: Path) -> None:
    folder = save_small_agent(here / "model")
    (here / "prompt.txt").write_text("Be brief.")  # the model holds 512 tokens
    more = ("--scorer", str(folder), "--system-prompt", "prompt.txt")
    assert run("eval", "q.jsonl", "--pages", "pages", *more, out=here / "out") == 0
    gains = [reward.information_gain for reward in played(here / "out").rewards]
    assert [gain is None for gain in gains] == [True, False, True]


# ---- entry points ---------------------------------------------------------------------------


@pytest.fixture
def installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that brings an outcome, tools, a scorer and an advantage along."""
    info = here / "site" / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[drv_env.outcomes]\nhalfway = mine:half\nlost = nowhere:half\n"
        "[drv_env.tools]\nletters = mine:ruler\n"
        "[drv_env.scorers]\ncounting = mine:Scorer\n"
        "[drv_env.advantages]\nflat = mine:half\n"
    )
    monkeypatch.syspath_prepend(here / "site")
    monkeypatch.syspath_prepend(here)
    return here


def test_what_an_installed_package_brings_is_known_by_name(installed: Path) -> None:
    more = ("--outcome", "halfway", "--own-tools", "letters", "--scorer", "counting")
    assert run("eval", "q.jsonl", "--pages", "pages", *more, out=installed / "out") == 0
    found = played(installed / "out")
    assert found.outcome == 0.5
    assert found.turns[2].tool == "ruler"
    assert found.rewards[1].information_gain == 4.0
    assert ADVANTAGES["flat"](None, None) == 0.5  # type: ignore[call-arg, comparison-overlap]
    assert "halfway" in OUTCOMES.names()
    with pytest.raises(SettingError, match=r"the outcome lost \(nowhere:half\) can't be had"):
        OUTCOMES["lost"]


@pytest.mark.parametrize("registry", [OUTCOMES, TOOLS, SCORERS, ADVANTAGES, TRAINERS])
def test_every_kind_has_its_group(registry: Registry[Any]) -> None:
    with pytest.raises(SettingError, match=f"entry point of the group {registry.group}"):
        registry["nothing-of-this-name"]


# ---- what can't work is one line ------------------------------------------------------------


@pytest.mark.parametrize("named", ["outcome", "plugin"])
def test_what_fails_while_it_is_imported_is_told_with_its_line(here: Path, named: str) -> None:
    (here / "fails_here.py").write_text("import json\n\nhalf = 1 / 0\n")
    imports = {"plugin": lambda: import_plugins(["fails_here"])}
    imports["outcome"] = lambda: OUTCOMES["fails_here:half"]
    with pytest.raises(SettingError, match=r"ZeroDivisionError: .* \(fails_here\.py, line 3\)$"):
        imports[named]()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--outcome", "nearly"), "there is no outcome 'nearly', only exact, exact-cjk, f1"),
        (("--outcome", "mine:nothing"), "the outcome mine:nothing can't be imported"),
        (("--outcome", "nowhere:half"), "the outcome nowhere:half can't be imported"),
        (
            ("--outcome", "mine:number"),
            "the outcome mine:number can't be used: it is, or makes, int",
        ),
        (("--outcome", "mine:broken"), "the outcome mine:broken can't be made: OSError: no such"),
        (("--own-tools", "mine:number"), "the tools mine:number can't be used"),
        (("--own-tools", "mine:measure"), "drv_env.tools.layers.tool(schema, function)"),
        (("--own-tools", "mine:web"), "mine:web are whole tools, which stand alone"),
        (("--tools", "mine"), "there is no kind of tools 'mine'"),
        (("--scorer", "mine:half"), "the scorer mine:half can't be used"),
        (("--scorer", "guess"), "there is no scorer 'guess'"),
        (("--scorer", "engine"), "the scorer engine needs an engine that gives log-probs"),
        (("--plugins", "nowhere"), "; it is looked for in "),
        (("--pages", "nowhere"), "nowhere: there is no such file or folder"),
        (("--pages", "mine.py"), "mine.py: unknown kind of file"),
        (("--world", "3"), "--pages"),
        (("--web", "somewhere"), "--pages goes with --tools offline, not recorded"),
    ],
)
def test_a_name_that_can_not_work_is_one_line(
    here: Path, more: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = () if more[0] in ("--pages", "--tools") else ("--pages", "pages")
    assert run("eval", "q.jsonl", *pages, *more) == 1
    assert says in line_of(capsys)


def test_pages_have_no_questions_of_a_world(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("eval", "world", "--pages", "pages") == 1
    assert "--pages are pages of your own" in capsys.readouterr().err


def test_the_package_keeps_its_own_names() -> None:
    with pytest.raises(SettingError, match="take another name"):
        OUTCOMES.register("exact")(lambda answer, task: 1.0)
    assert outcome_of("f1")("a b", ("Q?", "a")) == pytest.approx(2 / 3)  # type: ignore[arg-type]


# ---- training -------------------------------------------------------------------------------

TRAIN = """
plugins: [mine]
out: run
model: {folder: model}
tasks: {source: q.jsonl}
tools: {pages: pages, own: ["mine:ruler"]}
outcome: third
engine: {parallel: 4}
rules: {max_turns: 2, max_turn_tokens: 100, max_context: 512}
rl: {steps: 1, tasks_per_step: 1, group_size: 2, minibatches: 1, gain_by: "mine:Scorer"}
"""


def test_a_run_of_training_plays_with_ones_own(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_small_agent(here / "model")

    def script(seen: str, number: int) -> str:
        done = "<tool_response>" in seen
        return render_turn("", Answer(GOLD) if done else Visit(("mill.md",), "owner"))

    play_decided(monkeypatch, script, ChatTemplate.from_folder(folder))
    (here / "run.yaml").write_text(TRAIN)
    assert main(["train", "igpo", "--config", "run.yaml", "--plan"]) == 0
    shown = capsys.readouterr().out
    assert "offline, third" in shown
    assert main(["train", "igpo", "--config", "run.yaml"]) == 0
    found = list(read_trajectories(here / "run" / "trajectories"))
    assert [item.task.question for item in found] == [QUESTION] * 2
    assert [item.outcome for item in found] == pytest.approx([1 / 3] * 2)
    gains = [[reward.information_gain for reward in item.rewards] for item in found]
    assert gains == [[2.0, None]] * 2  # one message before, three after the visit
    agent = json.loads((here / "run" / "checkpoints" / "final" / "agent.json").read_text())
    assert "worlds" not in agent["offline"]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (("--outcome", "nearly"), "there is no outcome 'nearly'"),
        (("--tools.own", "mine:web"), "mine:web are whole tools"),
        (("--tools.pages", "pages", "--tools.web", "web"), "pages goes with"),
    ],
)
def test_what_training_can_not_play_with_is_one_line(
    here: Path, option: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_small_agent(here / "model")
    given = ["--model.folder", str(folder), "--tasks.source", "q.jsonl", "--out", "run"]
    assert main(["train", "igpo", *given, *option, "--plan"]) == 1
    assert says in line_of(capsys)


def test_scorers_and_tasks_of_the_module_are_usable_from_python(here: Path) -> None:
    scorer = scorer_of("mine:Scorer")
    assert scorer.score([{"role": "user", "content": "x"}], "Salen") == -3.0
    assert [task.question for task in read_tasks(here / "q.jsonl")] == [QUESTION]
