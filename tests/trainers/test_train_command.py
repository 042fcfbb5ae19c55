"""``drv train``: whole runs on the tiny game, killed and gone on with, and their plans."""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file

from replay.store import read_trajectories
from tests import warm_process
from tests.trainers.train_runs import DECIDED, SMALL, decided, metrics, save_untrained, train
from trainers.cli import main
from trainers.runs import rl_run

KILLED = f"""
import os, signal, sys

from trainers.cli import main
{DECIDED}

renames = [0]


def watch(event, arguments):
    if event == "os.rename" and "/state/." in str(arguments[0]):
        renames[0] += 1
        if renames[0] == 2:  # while the second state takes its place
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(watch)
main(sys.argv[1:])
"""


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tiny_game, tmp_path_factory):
    path = tmp_path_factory.mktemp("train")
    save_untrained(tiny_game, path)
    return path


@pytest.fixture(scope="module")
def cloned(folder):
    """The untrained model after ``drv train sft``."""
    more = "--sft.epochs 6 --sft.warmup-steps 10 --sft.learning-rate 5e-3 --data.held-out 0.1"
    learnt = ("--data.trajectories", str(folder / "expert.parquet"))
    assert train("sft", folder / "untrained", folder / "sft", *learnt, *more.split()) == 0
    return folder / "sft" / "checkpoints" / "final"


@pytest.fixture(scope="module", autouse=True)
def _decided(folder):
    with decided(folder / "untrained"):
        yield


@pytest.fixture(scope="module")
def whole(cloned, folder):
    """A run of IGPO that nobody interrupted."""
    assert train("igpo", cloned, folder / "whole", *SMALL, "--checkpoints.every", "1") == 0
    return folder / "whole"


def timeless(line):
    return {
        name: value
        for name, value in line.items()
        if "seconds" not in name and "_s_" not in name and name != "phase"
    }


def weights(out):
    return load_file(out / "checkpoints" / "final" / "model.safetensors")


def same(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def distance(first, second):
    return sum(float((first[name] - second[name]).square().sum()) for name in first) ** 0.5


def test_fine_tuning_learns_and_leaves_a_model_that_plays(cloned, folder, capsys):
    found = metrics(folder / "sft", "sft")
    assert [line["step"] for line in found] == list(range(1, len(found) + 1))
    assert found[-1]["loss"] < 0.5 * found[0]["loss"]
    assert found[-1]["held_out_loss"] < found[0]["loss"]
    assert "held_out_loss" not in found[0]
    arguments = ["eval", "world", "--model", str(cloned), "--questions", "6", "--json"]
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"]["worlds"] == [11]
    assert (told["episodes"], told["broken"]) == (6, 0)


def test_a_run_leaves_metrics_trajectories_and_checkpoints(whole, cloned):
    assert [line["step"] for line in metrics(whole, "rl")] == [1, 2, 3]
    assert [line["step"] for line in metrics(whole, "evaluation")] == [0, 1, 2, 3]
    step = metrics(whole, "rl")[0]
    assert step["seconds_rollout"] > 0
    assert not same(weights(whole), load_file(cloned / "model.safetensors"))
    trajectories = list(read_trajectories(whole / "trajectories" / "rl-0001.parquet"))
    assert len(trajectories) == 8
    visits = sum(turn.action == "visit" for item in trajectories for turn in item.turns)
    assert step["scored_turns"] == visits > 0
    held = list(read_trajectories(whole / "trajectories" / "evaluation-0002.parquet"))
    trained = {
        item.task.metadata["start"]
        for number in (1, 2, 3)
        for item in read_trajectories(whole / "trajectories" / f"rl-000{number}.parquet")
    }
    assert len(held) == 8
    assert not trained & {item.task.metadata["start"] for item in held}
    # two of the steps' checkpoints stay, and the last of them is the final one
    kept = sorted(path.name for path in (whole / "checkpoints").iterdir())
    assert kept == ["final", "step-0002", "step-0003"]
    last = load_file(whole / "checkpoints" / "step-0003" / "model.safetensors")
    assert same(last, weights(whole))
    config = json.loads((whole / "config.json").read_text())["config"]
    assert (config["trainer"], config["rl"]["learning_rate"]) == ("igpo", 0.001)


def test_a_killed_run_goes_on_with_the_same_command(whole, cloned, tmp_path):
    out = tmp_path / "out"
    arguments = ["train", "igpo", "--model.folder", str(cloned), "--out", str(out), *SMALL]
    killed = warm_process.run(KILLED, str(cloned), *arguments)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert metrics(out, "rl")[-1]["step"] == 2  # which was not saved, and is taken again
    assert main(arguments) == 0
    assert [line["step"] for line in metrics(out, "rl")] == [1, 2, 3]
    assert [line["step"] for line in metrics(out, "evaluation")] == [0, 1, 2, 3]
    # the turns are decided, but two processes may differ in the last digits of all the rest
    for number in (1, 2, 3):
        mine, its = (
            list(read_trajectories(each / "trajectories" / f"rl-000{number}.parquet"))
            for each in (out, whole)
        )
        assert [item.turns for item in mine] == [item.turns for item in its]
    for mine, its in zip(metrics(out, "rl"), metrics(whole, "rl"), strict=True):
        assert timeless(mine) == pytest.approx(timeless(its), rel=1e-2, abs=1e-3)
        assert "loss" in its  # something is learnt in every step, after the kill too
    start = load_file(cloned / "model.safetensors")
    assert distance(weights(out), weights(whole)) < 0.1 * distance(weights(whole), start)


def test_ctrl_c_saves_says_so_and_the_same_command_goes_on(
    whole, cloned, tmp_path, monkeypatch, capsys
):
    write = rl_run.write_trajectories

    def press(path, trajectories):
        if path.name == "rl-0001.parquet":
            signal.raise_signal(signal.SIGINT)
        return write(path, trajectories)

    with monkeypatch.context() as patched:
        patched.setattr(rl_run, "write_trajectories", press)
        assert train("igpo", cloned, tmp_path / "out", *SMALL) == 130
    said = capsys.readouterr().err
    assert "keeps the state after step 1; the same command goes on" in said
    assert "Traceback" not in said
    assert train("igpo", cloned, tmp_path / "out", *SMALL) == 0
    assert same(weights(tmp_path / "out"), weights(whole))


def test_going_on_under_other_settings_is_refused_with_the_difference(whole, cloned, capsys):
    for more, told in (
        (("--rl.learning-rate", "1e-2"), "--rl.learning-rate: 0.001 there, 0.01 here"),
        (("--rules.max-turns", "4"), "--rules.max-turns: None there, 4 here"),
        (("--outcome", "f1"), "outcome: exact there, f1 here"),
    ):
        assert train("igpo", cloned, whole, *SMALL, *more) == 1
        said = capsys.readouterr().err
        assert told in said.strip().splitlines()[-1]
    assert train("grpo", cloned, whole, *SMALL) == 1
    assert "is the folder of a run of igpo" in capsys.readouterr().err
    # a plan may be asked for at any time
    assert train("igpo", cloned, whole, *SMALL, "--plan", "--rl.steps", "5") == 0
    assert "3 steps" in capsys.readouterr().out


def test_grpo_is_another_configuration_of_the_same(cloned, tmp_path):
    from trainers.grpo import main as grpo

    small = [*SMALL, "--rl.steps", "1", "--evaluation.every", "0", "--rl.rollouts", "async"]
    arguments = ["--model.folder", str(cloned), "--out", str(tmp_path / "out"), *small]
    assert grpo(arguments) == 0
    (step,) = metrics(tmp_path / "out", "rl")
    assert "scored_turns" in step
    assert step["scored_turns"] == 0
    assert metrics(tmp_path / "out", "evaluation") == []


def test_adapters_are_trained_and_merged(cloned, tmp_path):
    small = [*SMALL, "--rl.steps", "1", "--evaluation.every", "0"]
    lora = ("--model.lora.rank", "4", "--model.precision", "bfloat16", "--rl.learning-rate", "0.05")
    assert train("igpo", cloned, tmp_path / "out", *small, *lora) == 0
    before, after = load_file(cloned / "model.safetensors"), weights(tmp_path / "out")
    assert before.keys() == after.keys()
    changed = {  # but for the rounding of weights that are not trained
        name for name in before if not torch.equal(before[name].bfloat16(), after[name].bfloat16())
    }
    assert changed
    assert all("proj" in name for name in changed)


def test_help_shows_the_files_values(cloned, tmp_path, capsys):
    file = tmp_path / "run.yaml"
    file.write_text(f"model: {{folder: {cloned}}}\nrl: {{learning_rate: 1e-7}}\n")
    with pytest.raises(SystemExit) as stopped:
        main(["train", "igpo", "--config", str(file), "--preset", "cpu-small", "--help"])
    assert stopped.value.code == 0
    said = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert "(default: 1e-07)" in said  # of the file
    assert "--rl.steps INT rollout batches. (default: 20)" in said  # of the preset
    assert "--rl.credit.gamma FLOAT" in said
    assert "discount, in (0, 1]" in said


def test_the_trainers_are_listed(capsys):
    assert main(["train", "--help"]) == 0
    said = capsys.readouterr().out
    for name in ("sft", "grpo", "igpo", "paper-rl"):
        assert name in said
    assert main(["train", "ppo"]) == 1
    assert "there is no trainer 'ppo', only grpo, igpo" in capsys.readouterr().err


MODULES = """
import json, runpy, sys

for name, asked in json.loads(sys.argv[1]):
    sys.argv = [name, *asked]
    try:
        runpy.run_module(f"trainers.{name}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code, (name, end.code)
    sys.stdout.write("\\0")
"""


def test_the_trainers_modules_are_the_same_commands(folder, cloned, tmp_path, capfd):
    commands, told = [], []
    for name in ("sft", "grpo", "igpo"):
        out = str(tmp_path / name)
        asked = ["--model.folder", str(cloned), "--out", out, "--plan", "--model.device", "cpu"]
        if name == "sft":
            asked += ["--data.trajectories", str(folder / "expert.parquet")]
        assert main(["train", name, *asked]) == 0
        told.append(capfd.readouterr().out)
        assert f"{name}: the plan" in told[-1]
        commands.append((name, asked))
    done = warm_process.run(MODULES, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\0") == [*told, ""]
