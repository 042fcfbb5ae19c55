"""The noise of ``make test-anywhere`` is there, small, and the same for the same computation."""

import torch

from tests import logit_noise, warm_process

SCRIPT = """
import torch
from tests import logit_noise
from trainers.log_probs import token_log_probs
from trainers.tiny import TinySize, build_model, build_tokenizer

logit_noise.install_if_asked()
tokenizer = build_tokenizer(["Who?"], ["Tavelin"])
model = build_model(tokenizer, 0, TinySize(hidden=16, heads=1, head_dim=16, feed_forward=16))
ids = torch.arange(1, 9)[None]
with torch.no_grad():
    states = model.base_model(ids).last_hidden_state
    logits = model(ids).logits
    assert torch.equal(logits, model(ids).logits)
    log_probs = token_log_probs(model, ids, torch.arange(8)[None] > 0)[0]
print([*states[0, -1, :4].tolist(), *logits[0, -1, :4].tolist(), *log_probs[:4].tolist()])
"""


def figures(noise: str) -> torch.Tensor:
    done = warm_process.run(SCRIPT, env={logit_noise.SWITCH: noise})
    assert done.returncode == 0, done.stderr
    return torch.tensor([float(word) for word in done.stdout.strip("[]\n").split(",")]).double()


def test_every_way_to_logits_is_off_by_the_amplitude_at_most():
    plain, noised = figures(""), figures("1e-3:5")
    off = (noised / plain - 1).abs()
    assert off[:4].max() <= 1.1e-3
    assert (off > 1e-8).all()  # states, logits and the losses' log-probs alike


def test_it_follows_from_the_value_and_the_number_alone():
    states = torch.linspace(-3, 3, 4_000, dtype=torch.float32)
    first = logit_noise.noisy(states, 1e-3, 1)
    assert torch.equal(first, logit_noise.noisy(states, 1e-3, 1))
    assert torch.equal(first[100:200], logit_noise.noisy(states[100:200].clone(), 1e-3, 1))
    relative = first / states - 1
    assert 0.9e-3 < relative.abs().max() < 1.01e-3
    assert abs(float(relative.mean())) < 1e-4
    other = logit_noise.noisy(states, 1e-3, 2) / states - 1
    assert abs(float(torch.corrcoef(torch.stack([relative, other]))[0, 1])) < 0.1
