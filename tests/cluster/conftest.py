"""vLLM engines on tiny models, made once: starting one takes half a minute.

Without vLLM nothing here is collected.  Whatever a test does to an engine's weights it
undoes; tests that end an engine come last.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from agents.engines.vllm import VllmEngine
from trainers.tiny import IM_END, TinySize, build_model, build_tokenizer

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]

CONTEXT = 256
LAST = {"engine_to_close", "engine_to_kill"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(600))
    items.sort(key=lambda item: bool(LAST & set(getattr(item, "fixturenames", ()))))


@dataclass
class Started:
    """An engine, the model it began with, and vLLM's processes."""

    engine: Any
    model: Any
    folder: Path
    processes: list[Any]


def save_model(folder: Path, tied: bool) -> Any:
    """A tiny model with its tokenizer, as save_pretrained writes them."""
    texts = ["Who owns the mill? I search, then I open the page about it. Stop here, please."]
    tokenizer = build_tokenizer(texts * 3, ["mill", "owner"])
    model = build_model(tokenizer, 0, TinySize(context=CONTEXT))
    if not tied:
        model.config.tie_word_embeddings = False
        model = type(model)(model.config)
    randomise(model, 0)
    model.generation_config.eos_token_id = tokenizer.token_to_id(IM_END)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=IM_END).save_pretrained(folder)
    assert model.dtype == torch.float32
    return model.eval()


def randomise(model: Any, seed: int) -> None:
    """Weights that make some ids much likelier than others."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3, generator=generator)


def start(folder: Path, tied: bool) -> Started:
    import psutil  # of the second environment alone

    model = save_model(folder, tied)
    before = set(psutil.Process().children(recursive=True))
    engine = VllmEngine(folder, seed=3, dtype="float32")
    made = set(psutil.Process().children(recursive=True)) - before
    return Started(engine, model, folder, [p for p in made if "VLLM" in p.name()])


def stop(started: Started) -> None:
    asyncio.run(started.engine.close())


@pytest.fixture(scope="session")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    started = start(tmp_path_factory.mktemp("untied"), tied=False)
    yield started
    stop(started)


@pytest.fixture(scope="session")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    started = start(tmp_path_factory.mktemp("tied"), tied=True)
    yield started
    stop(started)


@pytest.fixture
def engine_to_close(untied: Started) -> Started:
    return untied


@pytest.fixture
def engine_to_kill(tied: Started) -> Started:
    return tied


@pytest.fixture(scope="session")
def plain() -> SimpleNamespace:
    """What engines are compared with: plain forward passes of the Transformers model."""
    tools = (logits, log_probs, greedy, prompts, chain, randomise)
    return SimpleNamespace(**{tool.__name__: tool for tool in tools})


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([[int(i) for i in ids]])).logits[0]


def log_probs(model, ids):
    """(length - 1,) log-prob of each id but the first."""
    ids = [int(i) for i in ids]
    rows = logits(model, ids)[:-1].log_softmax(-1)
    return rows.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()


def greedy(model, ids, count, penalty=0.0):
    """The ids that are likeliest one after the other, each id taken penalised."""
    ids = [int(i) for i in ids]
    taken = []
    for _ in range(count):
        row = logits(model, ids + taken)[-1]
        for id_ in set(taken):
            row[id_] -= penalty
        taken.append(int(row.argmax()))
    return taken


def prompts(count, seed=0, low=5, high=100, vocabulary=300):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocabulary, rng.integers(low, high)).tolist() for _ in range(count)]


def chain(model, ids):
    """Weights with which ``ids``, all different, follow one another and then begin again.

    Attention and feed-forward give nothing, so that an id's embedding alone decides the
    next; the output layer knows it by its predecessor.
    """
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for name, value in state.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            value.zero_()
        elif name.endswith("norm.weight"):
            value.fill_(1.0)
    head = torch.zeros_like(state["lm_head.weight"])
    embedding = state["model.embed_tokens.weight"]
    for before, after in zip(ids, [*ids[1:], ids[0]], strict=True):
        head[after] = 10 * embedding[before] / embedding[before].norm()
    state["lm_head.weight"] = head
    return state
