"""Documents packed into one row: each is as if it were alone."""

import numpy as np
import pytest
import torch

from drv_env import SettingError
from trainers.log_probs import token_log_probs, token_nll
from trainers.packed_attention import Documents, attend, attending, pack_rows
from trainers.rows import Row, pad_rows


def ragged(lengths, seed=0, vocabulary=300) -> list[Row]:
    rng = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        mask = rng.random(length) < 0.5
        mask[0] = False
        mask[-1] = length > 1
        rows.append(Row(rng.integers(0, vocabulary, length).astype(np.int32), mask))
    return rows


def test_packed_log_probs_equal_padded_ones(tiny_game):
    model = tiny_game.model()
    rows = ragged([7, 1, 40, 2, 23])
    expected, expected_entropies = token_log_probs(model, *pad_rows(rows))
    with attending(model):
        ids, mask, documents = pack_rows(rows)
        found, entropies = token_log_probs(model, ids, mask, documents=documents)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropies, expected_entropies, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_packed_gradients_equal_padded_ones(tiny_game, checkpointing):
    rows = ragged([9, 30, 14])
    total = sum(int(row.mask.sum()) for row in rows)
    plain, packed = tiny_game.model(), tiny_game.model().train()
    if checkpointing:
        packed.gradient_checkpointing_enable({"use_reentrant": False})
    token_nll(plain, *pad_rows(rows), total).backward()
    with attending(packed):
        ids, mask, documents = pack_rows(rows)
        token_nll(packed, ids, mask, total, documents).backward()
    for (name, one), other in zip(plain.named_parameters(), packed.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, atol=1e-6, rtol=1e-4, msg=name)


def test_no_token_sees_another_document(tiny_game):
    model = tiny_game.model()
    rows = ragged([12, 12, 12])
    other = [Row(rows[0].ids[::-1].copy(), rows[0].mask), rows[1], ragged([30], seed=5)[0]]
    found = []
    with attending(model):
        for chosen in (rows, other):
            ids, _, documents = pack_rows(chosen)
            middle = torch.zeros_like(ids, dtype=torch.bool)
            middle[0, 13:24] = True
            found.append(token_log_probs(model, ids, middle, documents=documents)[0])
    assert torch.equal(*found)


def test_positions_start_again_in_every_document():
    documents = Documents([3, 1, 2])
    assert documents.positions.tolist() == [[0, 1, 2, 0, 0, 1]]
    assert documents.edges.tolist() == [0, 3, 4, 6]


def test_grouped_heads_are_shared():
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 10, 8, generator=generator)
    key, value = torch.randn(2, 1, 2, 10, 8, generator=generator).unbind()
    documents = Documents([6, 4])
    found = attend(query, key, value, documents)
    mask = torch.block_diag(torch.ones(6, 6).tril(), torch.ones(4, 4).tril()).bool()
    repeated = [each.repeat_interleave(2, 1) for each in (key, value)]
    expected = torch.nn.functional.scaled_dot_product_attention(query, *repeated, attn_mask=mask)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_the_models_own_attention_is_back_afterwards(tiny_game):
    model = tiny_game.model()
    with attending(model):
        assert model.config._attn_implementation == "drv_documents"
        with pytest.raises(RuntimeError, match="not given the documents"):
            model(input_ids=torch.ones(1, 4, dtype=torch.int64))
    assert model.config._attn_implementation == "sdpa"
    ids, mask, documents = pack_rows(ragged([4]))
    with pytest.raises(ValueError, match="attending"):
        token_nll(model, ids, mask, 1, documents)


def test_a_documents_first_token_cannot_be_scored(tiny_game):
    model = tiny_game.model()
    ids, mask, documents = pack_rows(ragged([4, 5]))
    mask[0, 4] = True
    with attending(model), pytest.raises(ValueError, match="first token"):
        token_log_probs(model, ids, mask, documents=documents)


def test_sliding_windows_are_refused():
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 50}
    kinds = ["full_attention", "sliding_attention"]
    config = Qwen3Config(
        **sizes, **heads, use_sliding_window=True, sliding_window=4, layer_types=kinds
    )
    model = Qwen3ForCausalLM(config)
    ids, mask, documents = pack_rows(ragged([6, 6], vocabulary=50))
    with attending(model), pytest.raises(SettingError, match=r"sliding_window.*packed to False"):
        token_nll(model, ids, mask, 1, documents)


def test_a_model_with_attention_of_its_own_is_refused(tiny_game):
    model = tiny_game.model()
    rows = ragged([6, 6])
    model.config.num_hidden_layers += 1  # as if a layer had not asked
    ids, mask, documents = pack_rows(rows)
    model.model.layers.append(torch.nn.Identity())
    model.config.layer_types = ["full_attention"] * model.config.num_hidden_layers
    model.model.layers[-1].forward = lambda hidden, **other: hidden
    with attending(model), pytest.raises(SettingError, match="2 of its 3 layers"):
        token_nll(model, ids, mask, 1, documents)
