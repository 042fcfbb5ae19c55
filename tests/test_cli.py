"""The drv command: quick help, one clear line for what a user can mend."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from multiprocessing import get_context

import pytest

from replay.worker_processes import without_interrupts
from trainers.cli import main


def test_help_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from trainers.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'gymnasium', 'pyarrow', 'tantivy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("demo", "ask", "eval", "rollout"):
        assert f"• {name} " in done.stdout


def test_an_unknown_setting_is_named(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--sede", "1"])
    assert stopped.value.code == 2
    assert "sede" in capsys.readouterr().err


def test_what_a_user_can_mend_is_one_line(tmp_path, capsys):
    taken = tmp_path / "file"
    taken.write_text("mine")
    assert main(["demo", "--out", str(taken)]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "is a file" in lines[0]
    assert taken.read_text() == "mine"


def test_a_folder_with_other_things_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "holds other files" in capsys.readouterr().err
    assert [item.name for item in tmp_path.iterdir()] == ["thesis.txt"]


ROW = [
    {"role": "user", "content": "Who owns the mill?"},
    {"role": "assistant", "content": "<think>\nSalen.\n</think>\n<answer>Salen</answer>"},
]
ABSENT = [
    ["train", "igpo", "--config", "absent-7f"],
    ["train", "igpo", "--model.folder", "absent-7f"],
    ["train", "sft", "--model.folder", "absent-7f"],
    ["data", "stats", "absent-7f"],
    ["data", "show", "absent-7f"],
    ["data", "convert", "absent-7f", "out.jsonl"],
    ["data", "web", "absent-7f", "--out", "out"],
    ["data", "clean", "absent-7f", "--out", "out"],
    ["data", "report", "absent-7f"],
    ["data", "replay-check", "absent-7f", "--web", "absent-8e"],
    ["data", "rows", "rows.jsonl", "--tokenizer", "absent-7f", "--out", "out"],
    ["cassette", "stats", "absent-7f"],
    ["judge", "check", "absent-7f.jsonl"],
    ["ask", "who?", "--model", "absent-7f"],
    ["ask", "who?", "--model", "m", "--base-url", "http://h/v1", "--system-prompt", "absent-7f"],
    ["ask", "who?", "--model", "m", "--base-url", "http://h/v1", "--tokenizer", "absent-7f"],
    ["eval", "absent-7f.csv", "--model", "m", "--base-url", "http://h/v1", "--web", "absent-7f"],
]


@pytest.mark.parametrize("command", ABSENT, ids=" ".join)
def test_what_is_not_there_is_named_once_in_one_line(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": ROW}))
    assert main(command) == 1
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("drv: ")
    assert line.count("absent-") == 1, line
    assert "Errno" not in line


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory):
    """The folder of a very small demo, and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "run"
    arguments = "--expert-episodes 32 --rl-steps 1 --questions 4 --copy-steps 2 --worlds 2"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["demo", "--out", str(out), *arguments.split()]) == 0
    return out, printed.getvalue()


def test_a_very_small_demo_runs_whole(small_demo):
    out, printed = small_demo
    for stage in ("untrained", "SFT", "IGPO"):
        assert stage in printed
    assert {path.name for path in out.iterdir()} >= {
        "config.json",
        "metrics.jsonl",
        "tensorboard",
        "trajectories",
        "checkpoints",
    }
    config = json.loads((out / "config.json").read_text())
    assert config["config"]["demo"]["expert_episodes"] == 32
    assert config["versions"]["torch"].startswith("2.")
    phases = {json.loads(line)["phase"] for line in (out / "metrics.jsonl").open()}
    assert phases == {"copy", "sft", "rl", "evaluation"}


def test_its_checkpoint_loads_with_transformers_and_its_template_here(small_demo, capsys):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from replay.store import read_trajectories
    from replay.template import ChatTemplate

    out, _ = small_demo
    folder = out / "checkpoints" / "final"
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    template = ChatTemplate.from_folder(folder)
    assert template.opens_think
    assert model.config.eos_token_id == template.end_of_turn
    messages = [{"role": "user", "content": "What is X's founder?"}]
    theirs = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert template.prompt(messages).tolist() == theirs
    (item, *_) = read_trajectories(out / "trajectories" / "rl-0001.parquet")
    assert item.transcript.turns == len(item.turns)
    # it says how it plays, and drv eval plays it so
    assert main(["eval", "world", "--model", str(folder), "--questions", "4", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert (settings["worlds"], settings["max_context"]) == ([0, 1], 640)
    assert (settings["presence_penalty"], settings["fields"]) == (0.0, ["url"])


def test_a_count_that_cannot_work_is_one_line(tmp_path, capsys):
    assert main(["demo", "--questions", "0", "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err == "drv: --questions must be at least 1, got 0\n"
    assert not (tmp_path / "run").exists()


INTERRUPTED = """
import sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from trainers.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("module", ["tyro", "drv_env", "trainers.commands.root", "rich.console"])
def test_ctrl_c_while_the_command_starts_is_one_word(module):
    command = [sys.executable, "-c", INTERRUPTED, module, "ask", "Who?", "--model", "m"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (130, "\nStopped.\n", "")


def _blocked() -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_worker_never_sees_ctrl_c_not_even_while_it_starts():
    assert not _blocked()
    with without_interrupts():
        process = get_context("spawn").Process(target=_exit_if_blocked)
        process.start()
    assert not _blocked()
    process.join()
    assert process.exitcode == 7


def _exit_if_blocked() -> None:
    os._exit(7 if _blocked() else 1)
