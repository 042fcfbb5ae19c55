"""A killed run of fine-tuning, taken up again, ends as one that was not killed."""

import os
import signal
from dataclasses import replace

import pytest
import torch

from drv_env import SettingError
from tests import warm_process
from tests.trainers.test_packed_attention import ragged
from trainers.sft import SFTConfig, train_sft

CONFIG = SFTConfig(
    epochs=2,
    batch_size=4,
    microbatch_tokens=60,
    packed=True,
    schedule="cosine",
    warmup_share=0.4,
    betas=(0.9, 0.95),
    weight_decay=0.01,
    save_every=1,
)
LENGTHS = [20, 35, 9, 28, 17, 40, 12, 22, 31, 14]

KILLED_AT_EVERY_TOUCH_OF_THE_DISK = '''
"""Trains in forked children; child n dies as it touches the state's folder for the nth time."""

import os, signal, sys
from pathlib import Path

import torch

torch.set_num_threads(1)
from tests.trainers.test_sft_resume import CONFIG, small_model, rows_of
from trainers.sft import train_sft

folder, whole = Path(sys.argv[1]), []


def child(work):
    number = os.fork()
    if not number:
        work()
        os._exit(0)
    return os.waitpid(number, 0)[1]


def trained(state, result):
    model = small_model()
    train_sft(model, rows_of(), CONFIG, state=state)
    torch.save(model.state_dict(), result)


def dying(state, touch):
    left = [touch]

    def watch(event, arguments):
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir"):
            if any(str(state) in str(argument) for argument in arguments):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    trained(state, folder / "unused")


child(lambda: trained(None, folder / "whole"))
expected = torch.load(folder / "whole")
touch, killed = 0, True
while killed:
    touch += int(sys.argv[2])
    state = folder / f"state-{touch}"
    killed = child(lambda: dying(state, touch)) == signal.SIGKILL
    assert child(lambda: trained(state, folder / "resumed")) == 0, touch
    found = torch.load(folder / "resumed")
    assert all(torch.equal(found[name], expected[name]) for name in expected), touch
print(touch)
'''


def small_model():
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 300}
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, attention_dropout=0.1))


def rows_of():
    return ragged(LENGTHS)


def parameters(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def test_a_kill_at_any_touch_of_the_disk_costs_nothing(tmp_path):
    """Between steps and in the middle of writing, renaming and removing."""
    done = warm_process.run(KILLED_AT_EVERY_TOUCH_OF_THE_DISK, str(tmp_path), "11")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 70  # that many touches there are at least


@pytest.mark.parametrize("pressed_at", [1, 3])
def test_ctrl_c_finishes_the_step_saves_and_leaves(tmp_path, pressed_at):
    whole = small_model()
    train_sft(whole, rows_of(), CONFIG)

    model, seen = small_model(), []

    def press(step):
        seen.append(step.step)
        if step.step == pressed_at:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train_sft(model, rows_of(), CONFIG, press, state=tmp_path / "state")
    assert seen[-1] == pressed_at
    assert signal.getsignal(signal.SIGINT) is before

    model = small_model()
    rest = train_sft(model, rows_of(), CONFIG, state=tmp_path / "state")
    assert [step.step for step in rest] == list(range(pressed_at + 1, 7))
    assert torch.equal(parameters(model), parameters(whole))
    assert train_sft(model, rows_of(), CONFIG, state=tmp_path / "state") == []


def test_a_state_of_other_settings_or_rows_is_refused(tmp_path):
    train_sft(small_model(), rows_of(), CONFIG, state=tmp_path)
    other = replace(CONFIG, learning_rate=0.1)
    with pytest.raises(SettingError, match=r"learning_rate: 0.003 there, 0.1 here"):
        train_sft(small_model(), rows_of(), other, state=tmp_path)
    with pytest.raises(SettingError, match=r"rows: 10 rows.*9 rows"):
        train_sft(small_model(), rows_of()[:9], CONFIG, state=tmp_path)
