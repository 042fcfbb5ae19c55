"""Errors of commands name the option, as it is typed, and not what Python calls it."""

import json
import re

import pytest

from drv_env.errors import EngineError, SettingError, TaskDataError, settings_called
from trainers.cli import main
from trainers.commands.agent_options import ModelOptions, PaceOptions
from trainers.commands.option_names import in_options, naming_options, options_of

SERVER = "--model m --base-url http://127.0.0.1:9/v1"
ASK = f"ask who? {SERVER} --world 3"
EVAL = f"eval q.jsonl {SERVER} --tools offline"
ROLLOUT = f"rollout q.jsonl {SERVER} --tools offline --out out"
CLEAN = "data clean rows.jsonl --out out"
ROWS = "data rows rows.jsonl --tokenizer x --out out"
CHECK = "judge check labelled.jsonl --model j --cassette None"

REFUSED = [
    *(f"{ASK} --temperature -1", f"{ASK} --temperature nan", f"{ASK} --top-p 2"),
    *(f"{ASK} --top-k -3", f"{ASK} --presence-penalty 9", f"{ASK} --max-turns 0"),
    *(f"{ASK} --max-turn-tokens 0", f"{ASK} --max-seconds -1", f"{ASK} --max-cost -1"),
    *(f"{ASK} --parallel 0", f"{ASK} --turn-timeout 0", f"{ASK} --seed -1"),
    *("ask who? --model m --base-url http://h/v1 --world -7", f"{EVAL} --world 3 -7"),
    *(f"{EVAL} --samples 0", f"{EVAL} --samples {2**63}", f"{EVAL} --retries -1"),
    *(f"{EVAL} --max-requests 0", f"{EVAL} --max-calls 0", f"{EVAL} --episode-timeout 0"),
    *(f"{EVAL} --straggler-share 2", f"{EVAL} --attempts 0", f"{EVAL} --flush-seconds -1"),
    *(f"{EVAL} --questions 0", f"{EVAL} --questions 7", f"{EVAL} --max-turns 0"),
    *(f"{ROLLOUT} --group-size 0", f"{ROLLOUT} --group-size {2**63}"),
    *("demo --out out --rl-steps 0", "demo --out out --seed -1", "demo --out out --worlds 0"),
    *(f"{CLEAN} --weights x", f"{CLEAN} --weights 50:0", f"{CLEAN} --workers 0"),
    *(f"{CLEAN} --longest-message 0", f"{CLEAN} --shuffle -1"),
    *(f"{CLEAN} --correctness exact --keep-from 2",),
    *(f"{ROWS} --max-tokens 0", f"{ROWS} --workers 0"),
    *(f"{CHECK} --attempts 0", f"{CHECK} --limit 0", f"{CHECK} --temperature -1"),
    *(f"{CHECK} --confidence 2",),
]
"""Commands whose last option can't have its value."""


@pytest.mark.parametrize("command", REFUSED)
def test_a_value_that_cannot_work_is_told_by_its_option(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGE_API_BASE", "http://127.0.0.1:9/v1")
    turn = "<think>\nSalen.\n</think>\n<answer>Salen</answer>"
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": turn}]
    label = {"question": "Who?", "answers": ["Ada"], "answer": "Ada", "label": True}
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": "Who?", "answer": "Ada"}))
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": messages}))
    (tmp_path / "labelled.jsonl").write_text(json.dumps(label))
    assert main(command.split()) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    option = re.findall(r"--[a-z-]+", command)[-1]
    assert re.match(f"drv: {option} (must be|are written) ", line), line
    assert "_" not in line.replace("MOST_TURNS", "")


def test_the_seed_of_a_world_is_no_option(capsys):
    assert main(["world", "questions", "-1"]) == 1
    assert capsys.readouterr().err == "drv: the seed of a world must be at least 0, got -1\n"


def test_names_in_the_middle_are_options_too_and_words_and_files_are_not():
    options = {"base_url": "--base-url", "max_turns": "--max-turns", "seed": "--seed"}
    advice = options_of(ModelOptions(model="m")) | options_of(PaceOptions())
    told = in_options(EngineError("401; pass the server's api_key, or lower max_in_flight"), advice)
    assert told == (
        "401; pass the server's key in the variable that --api-key-env names, or lower "
        "--max-requests"
    )
    told = in_options(EngineError("lost; check base_url and the seed"), options)
    assert told == "lost; check --base-url and the seed"
    for text in (
        "/a/max_turns/x is no file",
        "a/max_turns.json is no file",
        "agent.json: max_turns must be at least 1, got 0",
        "got 'max_turns'",
        "max_turns_of_mine is unknown",
    ):
        assert in_options(SettingError(text), options) == text
    said = "--omit-field must be names among temperature, max_turns, seed"  # of a server's fields
    assert in_options(SettingError(said), options) == said
    columns = "no column for the question; the columns are: max_turns, base_url"
    assert in_options(TaskDataError(columns), options) == columns


def test_a_setting_may_be_called_otherwise_on_its_way():
    with (
        pytest.raises(SettingError, match=r"^--world must be at least 0, got -1$"),
        naming_options({"world": "--world", "seed": "--seed"}),
        settings_called(seed="world"),
    ):
        raise SettingError("seed[3] must be at least 0, got -1", setting="seed")
