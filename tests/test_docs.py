"""Every code block of README.md and docs/ runs as it stands, one behind the other on its page.

A block that needs what no test has says so in its fence, ```` ```python needs=gpu ````: it is
read, and its commands' options are checked, but it is not run.  What needs keys runs with made-up
ones, which reach nobody.  A page of docs may lean on names
and files that its text speaks of; the scenes below have them.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import gymnasium
import pytest
import tyro

import drv_env
from agents.engines.scripted import ScriptedEngine
from drv_env.cassette import CassetteStore, Recorded
from drv_env.game import Game
from drv_env.protocol import Answer, render_turn
from drv_env.task_files import read_tasks
from drv_env.testing import FakeTools
from drv_env.worlds import WorldRecipe, questions
from replay.chat_templates import QWEN3_THINKING
from replay.trajectory import Trajectory
from tests.agents.conftest import make_template
from trainers.cli import main
from trainers.commands.root import Command
from trainers.commands.train import parse_options, read_layers
from trainers.registry import ADVANTAGES
from trainers.runs.trainer_registry import TRAINERS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS = {"minutes", "keys", "gpu", "trl", "verifiers", "cluster"}
"""What a fence may say that a block needs."""
MOST_UNRUN = 17
"""Blocks that say so, over all pages."""


class Block(NamedTuple):
    """A fenced block: its line, language, what it needs, and its text."""

    page: Path
    line: int
    language: str
    needs: str | None
    text: str


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in re.finditer(r"^```([^\n`]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        language, _, rest = match[1].strip().partition(" ")
        needs = rest.removeprefix("needs=") if rest else None
        line = text[: match.start()].count("\n") + 1
        found.append(Block(page, line, language, needs, match[2]))
    return found


BLOCKS = {page: blocks_of(page) for page in PAGES}


# ---- what pages lean on ---------------------------------------------------------------------

TURN = "<think>\nSalen.\n</think>\n<answer>Salen</answer>"
SEARCH = '<tool_call>\n{"name": "search", "arguments": {"query": ["mill"]}}\n</tool_call>'
RECORDED = {
    "question": "Who owns the mill?",
    "gt": "Salen",
    "messages": [
        {"role": "user", "content": "Who owns the mill?"},
        {"role": "assistant", "content": f"<think>\nI look.\n</think>\n{SEARCH}"},
        {
            "role": "user",
            "content": "<tool_response>\nA Google search for 'mill' found 1 results:\n\n"
            "## Web Results\n1. [Mill](https://e.org/mill)\nThe mill.\n</tool_response>",
        },
        {"role": "assistant", "content": TURN},
    ],
}


def played() -> Trajectory:
    env = gymnasium.make(drv_env.ENV_ID, tasks=[("Who?", "Salen")], tools=FakeTools())
    env.reset(seed=0)
    reward = env.step(TURN)[4]["turn_reward"]
    return Trajectory.of(env.unwrapped.episode, [reward])


def write_recordings() -> None:
    Path("raw").mkdir()
    Path("raw/rows.jsonl").write_text(json.dumps(RECORDED) + "\n")


def write_tokenizer(name: str) -> None:
    """A folder with a tokenizer and its chat template, and no model."""
    folder = Path(name)
    folder.mkdir()
    make_template().pieces.tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(QWEN3_THINKING)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')


def readme() -> dict[str, Any]:
    write_recordings()
    write_tokenizer("Qwen3-4B-Thinking-2507")
    Path("questions.jsonl").write_text('{"question": "Who?", "answer": "Ada"}\n')
    return {}


def cassettes() -> dict[str, Any]:
    with CassetteStore("web.cassette") as store:  # of an earlier run
        store.put("verdict", {"question": "?"}, Recorded("correct"))
    return {"tools": FakeTools()}


def data() -> dict[str, Any]:
    write_recordings()
    return {}


def environment() -> dict[str, Any]:
    from tests.small_agent import save_small_agent  # which brings torch

    save_small_agent(Path("runs/demo/checkpoints/final"))
    template = make_template()
    return {"template": template, "engine": scripted(template)}


def replay() -> dict[str, Any]:
    write_recordings()
    write_tokenizer("model")
    assert main(["data", "rows", "raw", "--tokenizer", "model", "--out", "rows"]) == 0
    assert main(["data", "web", "raw", "--out", "web"]) == 0
    Path("questions.jsonl").write_text('{"question": "Who?", "answer": "Ada"}\n')
    return {"trajectory": played()}


def rewards() -> dict[str, Any]:
    return {"tasks": [("Who?", "Ada")], "tools": FakeTools()}


def scripted(template: Any) -> ScriptedEngine:
    return ScriptedEngine(template, lambda _: render_turn("Known.", Answer("Salen")))


def rollouts() -> dict[str, Any]:
    template = make_template()
    tasks = read_tasks_of_world()
    tools = FakeTools()
    engine = scripted(template)
    return {
        "envs": gymnasium.make_vec(drv_env.ENV_ID, num_envs=16, tasks=tasks, tools=tools),
        "game": Game(tasks, tools),
        "engine": engine,
        "template": template,
        "tasks": tasks,
        "group": tasks,
        "sampling": sampling(),
    }


def read_tasks_of_world() -> list[Any]:
    return questions(WorldRecipe(3).build())[:2]


def sampling() -> Any:
    from agents.engines.base import Sampling

    return Sampling(8192)


def tasks() -> dict[str, Any]:
    Path("data").mkdir()
    Path("questions.csv").write_text("Frage;Antwort\nWho?;Ada\nWhat?;\nWhere?;Here\n")
    from replay.store import write_trajectories

    write_trajectories("unused.parquet", [played()])
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"question": ["Who?"], "answer": ["Ada"]}), "data/train.parquet")
    some = [{"question": f"Who is {n}?", "answer": "Ada", "difficulty": n} for n in range(1, 4)]
    Path("some.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    return {"tools": FakeTools(), "tasks": list(read_tasks("some.jsonl").tasks)}


def tools() -> dict[str, Any]:
    return {"key": "a-key-of-a-test", "live": FakeTools()}


SCENES: dict[str, Callable[[], dict[str, Any]]] = {
    "README.md": readme,
    "cassettes.md": cassettes,
    "data.md": data,
    "environment.md": environment,
    "replay.md": replay,
    "rewards.md": rewards,
    "rollouts.md": rollouts,
    "tasks.md": tasks,
    "tools.md": tools,
}


# ---- running them ---------------------------------------------------------------------------


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run it in the page's namespace; ``await`` may stand alone, as in a notebook."""
    where = f"{block.page}, the block in line {block.line}"
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(
        "\n" * block.line + block.text, str(block.page), "exec", flags, dont_inherit=True
    )
    try:
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))
        else:
            exec(code, names)
    except Exception as error:
        error.add_note(where)
        raise


def commands_in(block: Block) -> list[list[str]]:
    """The words of each ``drv`` command of a block of a shell."""
    found = []
    lines = block.text.replace("\\\n", " ").splitlines()
    for line in filter(str.strip, lines):
        words = shlex.split(line.removeprefix("$ "), comments=True)
        for place, word in enumerate(words):
            if word == "drv" or word.endswith("/drv"):
                found.append(words[place + 1 :])
                break
        else:
            assert words[0] in ("make", "pip", "python"), f"{block.page}: {line}"
            if words[0] == "make":
                assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(), line
            if words[0] == "python":
                assert (ROOT / words[1]).is_file(), line
    return found


def check_options(command: list[str]) -> None:
    """Refuse a command whose options there are not, without running it."""
    if command[0] != "train":
        tyro.cli(Command, args=command)
        return
    name, rest = command[1], [word for word in command[2:] if word not in ("--help", "--plan")]
    config = rest[rest.index("--config") + 1] if "--config" in rest else None
    parse_options(TRAINERS[name], read_layers(config).over(TRAINERS[name]), rest)


@pytest.fixture
def page_folder(tmp_path, monkeypatch):
    """An empty folder to work in, with the examples beside it, and keys that reach nobody."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("SERPER_KEY_ID", "a-key-of-a-test")
    monkeypatch.setenv("JUDGE_API_BASE", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("JUDGE_MODEL_NAME", "a-judge")
    monkeypatch.setattr(ADVANTAGES, "_things", dict(ADVANTAGES._things))  # a page adds to them
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_one_behind_the_other(page, page_folder, request):
    module = ModuleType("__main__")  # so that what stands under a guard runs too
    names = module.__dict__
    names |= SCENES.get(page.name, dict)()
    for block in BLOCKS[page]:
        if block.language == "python" and block.needs in (None, "keys"):  # made-up ones will do
            run_python(block, names)
        elif block.language == "json":
            for line in block.text.splitlines():
                json.loads(line)
        elif block.language in ("console", "bash"):
            for command in commands_in(block):
                if block.needs is None:
                    assert main(command) == 0, command
                else:
                    check_options(command)
    for name, found in list(names.items()):  # tests that a page shows, with the real fixtures
        if name.startswith("test_"):
            wanted = inspect.signature(found).parameters
            found(**{each: request.getfixturevalue(each) for each in wanted})


def test_few_blocks_are_not_run_and_all_of_them_are_python_and_say_why():
    unrun = [block for blocks in BLOCKS.values() for block in blocks if block.needs is not None]
    assert {block.needs for block in unrun} <= NEEDS
    assert len(unrun) <= MOST_UNRUN
    for block in unrun:
        if block.language == "python":
            compile(block.text, str(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    languages = {block.language for blocks in BLOCKS.values() for block in blocks}
    assert languages <= {"python", "console", "bash", "json", "text", "", "yaml"}


def test_a_block_that_fails_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1\n```\n\n```python needs=keys\ny\n```\n\n```python\nx / 0\n```\n"
    )
    first, second, third = blocks_of(page)
    assert (second.needs, third.line) == ("keys", 9)
    names: dict[str, Any] = {}
    run_python(first, names)
    with pytest.raises(ZeroDivisionError) as caught:
        run_python(third, names)
    assert "line 9" in caught.value.__notes__[0]
