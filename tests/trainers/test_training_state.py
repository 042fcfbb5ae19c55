"""A run's state on disk: whole at any moment, and what was saved comes back."""

import numpy as np
import pytest
import torch
from torch import nn

from drv_env import SettingError
from trainers.training_state import StateFolder


def made(seed=0, width=3):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(width, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def step(model, optimiser, rng):
    inputs = torch.from_numpy(rng.normal(size=(8, 3)).astype(np.float32))
    optimiser.zero_grad()
    model(inputs).square().mean().backward()
    optimiser.step()


def parameters(model):
    return torch.cat([value.flatten().float() for value in model.state_dict().values()])


def test_a_run_goes_on_as_if_nothing_had_been(tmp_path):
    model, optimiser = made()
    rng, other_rng = np.random.default_rng(7), torch.Generator().manual_seed(3)
    torch.manual_seed(5)
    for _ in range(3):
        step(model, optimiser, rng)
    torch.rand(2, generator=other_rng)
    StateFolder(tmp_path / "state").save(
        3, model, optimiser, {"rate": 0.1}, {"rows": rng, "other": other_rng}, {"position": [1, 2]}
    )
    for _ in range(2):
        step(model, optimiser, rng)
    expected = parameters(model), torch.rand(3), torch.rand(2, generator=other_rng)

    model, optimiser = made(seed=99)
    rng, other_rng = np.random.default_rng(0), torch.Generator()
    saved = StateFolder(tmp_path / "state").latest()
    assert (saved.step, saved.extra) == (3, {"position": [1, 2]})
    saved.restore(model, optimiser, {"rate": 0.1}, {"rows": rng, "other": other_rng})
    for _ in range(2):
        step(model, optimiser, rng)
    found = parameters(model), torch.rand(3), torch.rand(2, generator=other_rng)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.pt"])
def test_one_bit_that_is_off_is_seen_and_nothing_is_changed(tmp_path, name, share):
    model, optimiser = made()
    step(model, optimiser, np.random.default_rng(0))
    path = StateFolder(tmp_path / "state").save(1, model, optimiser)
    data = bytearray((path / name).read_bytes())
    data[round(share * (len(data) - 1))] ^= 1
    (path / name).write_bytes(data)
    model, optimiser = made(seed=9)
    before = parameters(model)
    with pytest.raises(SettingError, match=f"{name} is not what was written; remove this state"):
        StateFolder(tmp_path / "state").latest().restore(model, optimiser)
    assert torch.equal(parameters(model), before)


def test_only_the_newest_state_is_left(tmp_path):
    model, optimiser = made()
    folder = StateFolder(tmp_path)
    for number in (5, 9, 9, 2):  # a run may be taken up from an earlier step
        path = folder.save(number, model, optimiser)
        assert list(tmp_path.iterdir()) == [path]
        assert folder.latest().step == number


def test_leftovers_of_a_killed_writer_do_not_count(tmp_path):
    model, optimiser = made()
    folder = StateFolder(tmp_path)
    folder.save(5, model, optimiser)
    (tmp_path / ".000002-step-6.new").mkdir()
    (tmp_path / ".000000-step-4.old").mkdir()
    folder = StateFolder(tmp_path)
    assert folder.latest().step == 5
    folder.save(6, model, optimiser)
    assert [item.name for item in tmp_path.iterdir()] == ["000002-step-6"]


def test_what_differs_is_named(tmp_path):
    model, optimiser = made()
    rng = np.random.default_rng(0)
    folder = StateFolder(tmp_path)
    folder.save(1, model, optimiser, {"rate": 0.1, "seed": 1}, {"rows": rng})
    saved = folder.latest()
    before = parameters(model)
    with pytest.raises(SettingError, match=r"settings differ \(rate: 0.1 there, 0.2 here\)"):
        saved.restore(model, optimiser, {"rate": 0.2, "seed": 1}, {"rows": rng})
    with pytest.raises(SettingError, match=r"generators differ \(\['rows'\] there, \[\] here\)"):
        saved.restore(model, optimiser, {"rate": 0.1, "seed": 1})
    wider, other = made(width=5)
    with pytest.raises(SettingError, match=r"0.weight: torch.float32 \(4, 3\) there, .*\(4, 5\)"):
        saved.restore(wider, other, {"rate": 0.1, "seed": 1}, {"rows": rng})
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(SettingError, match="kind: AdamW there, SGD here"):
        saved.restore(model, plain, {"rate": 0.1, "seed": 1}, {"rows": rng})
    assert torch.equal(parameters(model), before)


def test_frozen_weights_are_not_kept_but_compared(tmp_path):
    def half_frozen(seed):
        model, _ = made(seed)
        model[0].requires_grad_(False)
        return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])

    model, optimiser = half_frozen(0)
    path = StateFolder(tmp_path).save(1, model, optimiser)
    assert b"0.weight" not in (path / "weights.safetensors").read_bytes()
    same, optimiser = half_frozen(0)
    StateFolder(tmp_path).latest().restore(same, optimiser)
    other, optimiser = half_frozen(1)
    with pytest.raises(SettingError, match=r"0.weight: .*frozen"):
        StateFolder(tmp_path).latest().restore(other, optimiser)


def test_a_damaged_state_is_refused(tmp_path):
    model, optimiser = made()
    path = StateFolder(tmp_path).save(1, model, optimiser)
    weights = path / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    with pytest.raises(SettingError, match="is damaged"):
        StateFolder(tmp_path).latest().restore(model, optimiser)
    weights.unlink()
    with pytest.raises(SettingError, match="can't be read"):
        StateFolder(tmp_path).latest().restore(model, optimiser)
    (path / "state.json").write_text('{"version": 0}')
    with pytest.raises(SettingError, match="version 0"):
        StateFolder(tmp_path).latest()


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(SettingError, match=r"thesis.tex"):
        StateFolder(tmp_path)
    with pytest.raises(SettingError, match="is a file"):
        StateFolder(tmp_path / "thesis.tex")
