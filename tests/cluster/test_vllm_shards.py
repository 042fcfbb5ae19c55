"""Weights on a rank of two: what vLLM's own layers load of a checkpoint is recognised, bit for bit.

The layers are vLLM's, each made as rank 0 or 1 of two (or of four) would make it, and loaded by
their own loaders; only the rank's number is given, for a single process has none.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from agents.engines._vllm_shards import place, values_used
from agents.engines._vllm_weights import join_parts
from agents.engines._vllm_worker import WeightsExtension, _split, differing, same_bits

HIDDEN, HEAD, QUERIES, KEYS, WIDE, VOCABULARY = 16, 4, 4, 2, 24, 70


class Model(nn.Module):
    """The layers of a decoder's layer, its embedding and its head, on one rank."""

    packed_modules_mapping = {  # noqa: RUF012 (as vLLM's models have it)
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }

    def __init__(self, keys: int, bias: bool) -> None:
        from vllm.model_executor.layers.linear import (
            ColumnParallelLinear,
            MergedColumnParallelLinear,
            QKVParallelLinear,
            ReplicatedLinear,
            RowParallelLinear,
        )
        from vllm.model_executor.layers.vocab_parallel_embedding import (
            ParallelLMHead,
            VocabParallelEmbedding,
        )

        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(VOCABULARY, HIDDEN)
        self.qkv_proj = QKVParallelLinear(HIDDEN, HEAD, QUERIES, keys, bias=bias)
        self.o_proj = RowParallelLinear(QUERIES * HEAD, HIDDEN, bias=bias)
        self.gate_up_proj = MergedColumnParallelLinear(HIDDEN, [WIDE, WIDE], bias=bias)
        self.down_proj = RowParallelLinear(WIDE, HIDDEN, bias=bias)
        self.router = ReplicatedLinear(HIDDEN, 8, bias=bias)
        self.alone = ColumnParallelLinear(HIDDEN, 2 * WIDE, bias=bias)
        self.norm = nn.LayerNorm(HIDDEN)
        self.lm_head = ParallelLMHead(VOCABULARY, HIDDEN)

    def load_weights(self, weights) -> None:
        """As vLLM's models do it: by the loader of each parameter."""
        parameters = dict(self.named_parameters())
        for name, given in weights:
            layer, _, leaf = name.rpartition(".")
            for whole, parts in self.packed_modules_mapping.items():
                if layer in parts:
                    shard = layer[0] if whole == "qkv_proj" else parts.index(layer)
                    parameter = parameters[f"{whole}.{leaf}"]
                    parameter.weight_loader(parameter, given, shard)
                    break
            else:
                parameter = parameters[name]
                loader = getattr(parameter, "weight_loader", None)
                if loader is None:
                    parameter.data.copy_(given)
                else:
                    loader(parameter, given)


def checkpoint(keys: int, bias: bool) -> dict[str, torch.Tensor]:
    """Whole tensors, by the checkpoint's names."""
    sizes = {
        "embed_tokens": (VOCABULARY, HIDDEN),
        "q_proj": (QUERIES * HEAD, HIDDEN),
        "k_proj": (keys * HEAD, HIDDEN),
        "v_proj": (keys * HEAD, HIDDEN),
        "o_proj": (HIDDEN, QUERIES * HEAD),
        "gate_proj": (WIDE, HIDDEN),
        "up_proj": (WIDE, HIDDEN),
        "down_proj": (HIDDEN, WIDE),
        "router": (8, HIDDEN),
        "alone": (2 * WIDE, HIDDEN),
        "lm_head": (VOCABULARY, HIDDEN),
    }
    generator = torch.Generator().manual_seed(0)
    found = {
        f"{name}.weight": torch.randn(size, generator=generator) for name, size in sizes.items()
    }
    if bias:
        for name, size in sizes.items():
            if name not in ("embed_tokens", "lm_head"):
                found[f"{name}.bias"] = torch.randn(size[0], generator=generator)
    for leaf in ("weight", "bias"):
        found[f"norm.{leaf}"] = torch.randn(HIDDEN, generator=generator)
    return found


@pytest.fixture
def as_rank(monkeypatch):
    """``as_rank(rank, ranks)``: layers are made as that rank's from now on."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor import parameter
    from vllm.model_executor.layers import linear, vocab_parallel_embedding

    def become(rank: int, ranks: int) -> None:
        for module in (linear, vocab_parallel_embedding, parameter):
            monkeypatch.setattr(module, "get_tensor_model_parallel_rank", lambda: rank)
            monkeypatch.setattr(module, "get_tensor_model_parallel_world_size", lambda: ranks)

    with set_current_vllm_config(VllmConfig()):
        yield become


@pytest.fixture(params=[(0, 1), (0, 2), (1, 2), (0, 4), (3, 4)], ids=lambda each: f"rank {each}")
def rank(request, as_rank):
    as_rank(*request.param)
    return request.param


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("keys", [4, 2, 1])
def test_what_a_rank_has_loaded_is_the_checkpoints(rank, keys, bias):
    model, tensors = Model(keys, bias), checkpoint(keys, bias)
    model.load_weights(tensors.items())
    for name, tensor in tensors.items():
        assert same_bits(model, name, tensor), name


@pytest.mark.parametrize("keys", [4, 2, 1])
def test_a_wrong_bit_in_a_ranks_part_is_found_and_in_anothers_is_not(rank, keys):
    model, tensors = Model(keys, True), checkpoint(keys, True)
    model.load_weights(tensors.items())
    for name, tensor in tensors.items():
        own = place(model, name, tensor.shape)
        marks = torch.arange(tensor.numel()).reshape(tensor.shape)
        mine = set(own.of(marks).flatten().tolist())
        assert len(mine) == own.view.numel()
        for at in {0, tensor.numel() // 2 - 1, tensor.numel() // 2, tensor.numel() - 1}:
            other = tensor.clone()
            value = other.view(-1)[at]
            other.view(-1)[at] = torch.nextafter(value, torch.tensor(9.0))
            assert same_bits(model, name, other) == (at not in mine), (name, at)
    with torch.no_grad():
        model.o_proj.weight[-1, -1] += 1
    assert not same_bits(model, "o_proj.weight", tensors["o_proj.weight"])
    assert not same_bits(model, "up_proj.weight", tensors["up_proj.weight"].double())


def test_the_halves_by_hand(as_rank):
    """Rank 1 of two: the later rows of columns, the later columns of rows, ids from 64 on."""
    as_rank(1, 2)
    model, tensors = Model(KEYS, False), checkpoint(KEYS, False)
    expected = {
        "q_proj.weight": (slice(8, 16), slice(None)),
        "k_proj.weight": (slice(4, 8), slice(None)),
        "gate_proj.weight": (slice(12, 24), slice(None)),
        "up_proj.weight": (slice(12, 24), slice(None)),
        "o_proj.weight": (slice(None), slice(8, 16)),
        "down_proj.weight": (slice(None), slice(12, 24)),
        "embed_tokens.weight": (slice(64, 70), slice(None)),  # padded to 128
        "router.weight": (slice(None), slice(None)),
    }
    for name, part in expected.items():
        tensor = tensors[name]
        assert torch.equal(place(model, name, tensor.shape).of(tensor), tensor[part]), name
    assert values_used(model, "lm_head.weight", model.lm_head.weight) == 6 * HIDDEN


def test_one_head_of_keys_stands_on_both_ranks(as_rank):
    tensors = checkpoint(1, False)
    for number in (0, 1):
        as_rank(number, 2)
        found = place(Model(1, False), "k_proj.weight", (HEAD, HIDDEN))
        assert torch.equal(found.of(tensors["k_proj.weight"]), tensors["k_proj.weight"])


@pytest.mark.parametrize("keys", [4, 2, 1])
def test_a_checkpoint_that_is_merged_itself_is_taken_part_by_part(rank, keys):
    """As Phi 3's, whose qkv_proj and gate_up_proj are one tensor each."""
    model, tensors = Model(keys, False), checkpoint(keys, False)
    model.load_weights(tensors.items())
    for whole, parts in model.packed_modules_mapping.items():
        merged = torch.cat([tensors[f"{part}.weight"] for part in parts])
        assert same_bits(model, f"{whole}.weight", merged)
        for at in range(len(merged)):
            other = merged.clone()
            other[at, 0] += 1
            rows = place(model, f"{whole}.weight", merged.shape).of(torch.arange(len(merged)))
            assert same_bits(model, f"{whole}.weight", other) == (at not in rows.tolist())


def test_tensors_of_another_shape_or_name_are_told(rank):
    model = Model(KEYS, False)
    with pytest.raises(KeyError, match="no parameter"):
        place(model, "other.weight", (3, 3))
    for name, shape in {
        "down_proj.weight": (HIDDEN, WIDE + 1),
        "q_proj.weight": (3 * QUERIES * HEAD, HIDDEN),
        "embed_tokens.weight": (VOCABULARY + 1, HIDDEN),
        "o_proj.weight": (2 * HIDDEN, 2 * HIDDEN),
        "norm.weight": (HIDDEN, HIDDEN),
    }.items():
        with pytest.raises(ValueError, match="the checkpoint's"):
            place(model, name, shape)


class Experts(Model):
    """Has two experts side by side, which the checkpoint has each by itself."""

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__(KEYS, False)
        self.rank, self.rows = rank, WIDE // ranks
        self.w2 = nn.Parameter(torch.zeros(2, self.rows, HIDDEN))

    def load_weights(self, weights) -> None:
        others = []
        for name, given in weights:
            if name.startswith("experts."):
                part = given[self.rank * self.rows : (self.rank + 1) * self.rows]
                self.w2.data[int(name.split(".")[1])] = part
            else:
                others.append((name, given))
        super().load_weights(others)


def test_what_stands_in_a_way_of_its_own_is_compared_by_loading_it(rank):
    model, tensors = Experts(*rank), checkpoint(KEYS, False)
    for number in (0, 1):
        tensors[f"experts.{number}.weight"] = torch.randn(WIDE, HIDDEN)
    model.load_weights(tensors.items())
    before = {name: each.clone() for name, each in model.state_dict().items()}

    def compared(given):
        found = differing(model, list(given), given.__getitem__)
        assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
        return found

    assert compared(tensors) == []
    for name, own in (("experts.1.weight", "w2"), ("q_proj.weight", "qkv_proj.weight")):
        assert compared({**tensors, name: tensors[name] + 1}) == [own]
    some = {name: each for name, each in tensors.items() if name != "down_proj.weight"}
    assert compared(some) == ["down_proj.weight"]  # which nothing in the file decides


def test_ranks_tensors_are_compared_where_they_stand(rank):
    model, tensors = Model(KEYS, True), checkpoint(KEYS, True)
    model.load_weights(tensors.items())
    assert differing(model, list(tensors), tensors.__getitem__) == []
    wrong = {
        **tensors,
        "v_proj.weight": tensors["v_proj.weight"] + 1,
        "norm.bias": tensors["norm.bias"] + 1,
    }
    assert differing(model, list(wrong), wrong.__getitem__) == ["v_proj.weight", "norm.bias"]


@pytest.mark.parametrize("keys", [4, 1])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_ranks_parts_put_together_are_the_checkpoint(as_rank, tmp_path, keys, ranks):
    from safetensors.torch import load_file

    tensors = checkpoint(keys, True)
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    parts = []
    for number in range(ranks):
        as_rank(number, ranks)
        model = Model(keys, True)
        model.load_weights(tensors.items())
        folder = tmp_path / str(number)
        folder.mkdir()
        worker = type("Worker", (WeightsExtension,), {"get_model": lambda self, of=model: of})()
        parts.append(worker.drv_weights_save(str(folder), shapes))
    join_parts(parts, shapes, str(tmp_path / "whole.safetensors"))
    found = load_file(tmp_path / "whole.safetensors")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize(
    ("tensor", "world", "data", "backend", "problem"),
    [
        (1, 1, 1, "uni", ""),
        (2, 2, 1, "mp", ""),
        (2, 4, 1, "mp", "otherwise than by tensor"),
        (2, 2, 2, "mp", "otherwise than by tensor"),
        (2, 2, 1, "ray", "several machines"),
    ],
)
def test_what_is_split_otherwise_takes_no_new_weights(tensor, world, data, backend, problem):
    config = SimpleNamespace(
        tensor_parallel_size=tensor,
        world_size=world,
        data_parallel_size=data,
        distributed_executor_backend=backend,
    )
    assert (problem in _split(config)) if problem else _split(config) == ""
