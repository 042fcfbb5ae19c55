"""Log-probs in chunks against full logits."""

import pytest
import torch

from trainers.log_probs import token_log_probs


def test_log_probs_equal_those_of_full_logits(tiny_game):
    model = tiny_game.model()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 300, (3, 40), generator=generator)
    wanted = torch.rand((3, 40), generator=generator) > 0.5
    wanted[:, 0] = False
    found, entropies = token_log_probs(model, ids, wanted, chunk=7)
    logits = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
    expected = logits.gather(-1, ids[:, 1:, None])[..., 0][wanted[:, 1:]]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        entropies, -(logits.exp() * logits).sum(-1)[wanted[:, 1:]], atol=1e-4, rtol=1e-4
    )


def test_padding_changes_nothing(tiny_game):
    model = tiny_game.model()
    ids = torch.arange(20)[None] + 5
    wanted = torch.ones(1, 20, dtype=torch.bool)
    wanted[:, 0] = False
    alone, _ = token_log_probs(model, ids, wanted)
    padded = torch.nn.functional.pad(ids, (0, 9))
    among, _ = token_log_probs(model, padded, torch.nn.functional.pad(wanted, (0, 9)))
    torch.testing.assert_close(among, alone, atol=1e-6, rtol=1e-6)


def test_gradients_do_not_depend_on_the_chunk(tiny_game):
    model = tiny_game.model()
    ids = torch.arange(30)[None] + 5
    wanted = torch.ones(1, 30, dtype=torch.bool)
    wanted[:, 0] = False
    grads = []
    for chunk in (4, 1000):
        model.zero_grad()
        token_log_probs(model, ids, wanted, chunk)[0].sum().backward()
        grads.append(model.model.layers[0].mlp.up_proj.weight.grad.clone())
    torch.testing.assert_close(grads[0], grads[1], atol=1e-5, rtol=1e-4)


def test_the_first_token_of_a_row_cannot_be_scored(tiny_game):
    with pytest.raises(ValueError, match="first token"):
        token_log_probs(
            tiny_game.model(), torch.zeros(1, 4, dtype=torch.int64), torch.ones(1, 4).bool()
        )
