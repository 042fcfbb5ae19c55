"""What a checkpoint must be to be played or trained, and refusals that name what it isn't.

A model whose weights are missing, damaged or another's answers all the same: Transformers
draws what is missing at random and says so in a log.  So every place that loads a model, or
has one loaded, asks here first: files and their headers, names and shapes as Transformers
maps them, numbers that are none, and the tokenizer's vocabulary.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from drv_env.errors import SettingError, boundary
from drv_env.json_files import why_unread
from replay.model_folders import fetching, model_folder

_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_ADAPTERS = "adapter_config.json"
_NUMBERS = ("F", "BF", "U8")  # safetensors' names of floating types; U8 is packed 4-bit ones
_TIED = (
    "config.json in {} ties the output layer to the embedding (tie_word_embeddings), but the "
    "weights of the two differ"
)
_SHOWN = 3
"""Names of weights in a message."""


def load_checked(folder: str | Path, dtype: str = "auto") -> PreTrainedModel:
    """The model of a checkpoint, whole; nothing is downloaded.

    Args:
        folder: as ``save_pretrained`` writes it, or a fetched model's name on the Hub.
        dtype: of the weights in memory; ``auto`` is what they are stored as.

    Raises:
        SettingError: naming the folder and what is wrong with it.
    """
    where = model_folder(folder)
    check_files(where)
    model = _load(where, dtype=dtype, attn_implementation="sdpa")
    check_finite(_tensors(model), f"the model in {where}")
    return model


def check_checkpoint(folder: str | Path) -> None:
    """What :func:`load_checked` refuses, for engines and trainers that load by themselves.

    Every weight is read once, a tensor at a time.

    Raises:
        SettingError: naming the folder and what is wrong with it.
    """
    where = model_folder(folder)
    check_names(where)
    check_finite(_stored(where), f"the model in {where}")
    _check_tied_files(where)


def check_names(folder: str | Path) -> None:
    """The part of :func:`check_checkpoint` that reads no weights: files, names and shapes.

    Raises:
        SettingError: naming the folder and what is wrong with it.
    """
    where = model_folder(folder)
    check_files(where)
    if importlib.util.find_spec("accelerate") is not None:  # Transformers needs it for this
        _load(where, device_map="meta")


def check_planned(folder: str | Path) -> None:
    """:func:`check_names` for a plan, which may be made where the weights are not.

    Raises:
        SettingError: naming the folder and what is wrong with it.
    """
    where = model_folder(folder)
    if any((where / name).is_file() for name in (_WHOLE, _INDEX)):
        check_names(where)


def check_files(folder: Path) -> None:
    """Configuration and weights are there, and every weight's file is whole.

    Raises:
        SettingError: naming the folder or the file.
    """
    if not (folder / "config.json").is_file():
        if (folder / _ADAPTERS).is_file():
            raise SettingError(
                f"{folder} holds adapters alone ({_ADAPTERS}), no model: merge them into theirs "
                "(peft's merge_and_unload) and save that"
            )
        raise SettingError(
            f"there is no model in {folder}: it has no config.json{fetching(folder)}"
        )
    if (folder / _ADAPTERS).is_file():
        raise SettingError(
            f"{folder} holds adapters beside a model ({_ADAPTERS}): merge them into it, or move "
            "them away, so that it is clear what is meant"
        )
    if not any((folder / name).is_file() for name in (_WHOLE, _INDEX)) and any(
        (folder / name).is_file() for name in _PICKLED
    ):
        return  # read by Transformers alone
    quantised = bool(_config(folder).get("quantization_config"))
    for file, wanted in weight_files(folder).items():
        with opened_weights(file) as opened:
            names = set(opened.keys())
            if wanted is not None and names != wanted:
                raise SettingError(
                    f"{file} doesn't hold what {_INDEX} says of it: "
                    + _differences(wanted - names, names - wanted)
                )
            for name in () if quantised else sorted(names):
                kind = opened.get_slice(name).get_dtype()
                if not kind.startswith(_NUMBERS) and name.endswith("weight"):
                    raise SettingError(
                        f"{file}: the weight {name} is stored as {kind}, which is no type of a "
                        "model's weights"
                    )


def weight_files(folder: Path) -> dict[Path, set[str] | None]:
    """The safetensors files of a folder, with the names that the index puts into each.

    Raises:
        SettingError: when one is missing, the index can't be read, or a whole model is beside it.
    """
    index = folder / _INDEX
    if not index.is_file():
        files: dict[Path, set[str] | None] = {folder / _WHOLE: None}
    else:
        try:
            placed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            named: dict[Path, set[str]] = {}
            for name, file in placed.items():
                if Path(file).name != file:
                    raise ValueError(f"{file!r} is no file beside it")
                named.setdefault(folder / file, set()).add(name)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SettingError(
                f"{index} can't be read: {type(error).__name__}: {why_unread(error)}"
            ) from None
        files = dict(sorted(named.items()))
        whole = folder / _WHOLE
        if whole.is_file() and whole not in files:
            raise SettingError(
                f"{folder} holds a whole model ({_WHOLE}) beside one in parts ({_INDEX}): move "
                "one of them away, so that it is clear which is meant"
            )
    for path in files:
        if not path.is_file():
            raise SettingError(f"no {path.name} in {folder}: save the model there as safetensors")
    return files


def check_finite(tensors: Iterable[tuple[str, Tensor]], what: str) -> None:
    """Refuse weights that are no numbers.

    Args:
        tensors: by name.
        what: they are of, for the message.

    Raises:
        SettingError: naming the first that is NaN or infinite somewhere.
    """
    for name, tensor in tensors:
        wrong = not_finite(tensor)
        if wrong:
            raise SettingError(
                f"{what} is damaged: {wrong:,} of {tensor.numel():,} values of {name} are NaN or "
                "infinite; take an earlier checkpoint, or download it again"
            )


def not_finite(tensor: Tensor) -> int:
    """How many values of a tensor are NaN or infinite; 0 of one that holds no floats."""
    if tensor.is_meta or not tensor.is_floating_point():
        return 0
    if tensor.element_size() == 1:  # 8-bit floats have no arithmetic of their own
        tensor = tensor.float()
    finite = torch.isfinite(tensor)
    return 0 if bool(finite.all()) else int((~finite).sum())


def check_tokenizer(folder: str | Path, tokenizer: Tokenizer, called: str) -> None:
    """Refuse a tokenizer with tokens that the model in ``folder`` has no embedding for.

    More rows than tokens are usual: vocabularies are padded.

    Args:
        folder: of the model; where it has no ``config.json`` nothing is known, or refused.
        tokenizer: in question.
        called: where it is from, for the message.

    Raises:
        SettingError: naming both.
    """
    rows, end = _vocabulary(Path(folder))
    ids = tokenizer.get_vocab(with_added_tokens=True)
    highest = max(ids.values(), default=-1)
    if rows is not None and highest >= rows:
        token = next(token for token, id_ in ids.items() if id_ == highest)
        raise SettingError(
            f"the tokenizer in {called} doesn't fit the model in {folder}: its token "
            f"{token!r:.80} has the id {highest:,}, and the model {rows:,} embeddings"
        )
    missing = [id_ for id_ in end if tokenizer.id_to_token(id_) is None]
    if missing and len(missing) == len(end):
        raise SettingError(
            f"the tokenizer in {called} doesn't fit the model in {folder}: it has {len(ids):,} "
            f"tokens, and none of them has the id {missing[0]:,}, with which the model ends a turn"
        )


def _vocabulary(folder: Path) -> tuple[int | None, list[int]]:
    """Embeddings that a configuration says there are, and the ids that end a turn."""
    if not (folder / "config.json").is_file():
        return None, []
    config = _config(folder)
    rows, end = config.get("vocab_size"), config.get("eos_token_id")
    ends = end if isinstance(end, list) else [end]
    return (
        rows if type(rows) is int else None,
        [id_ for id_ in ends if type(id_) is int and id_ >= 0],
    )


def _config(folder: Path) -> dict[str, Any]:
    """What ``config.json`` says, with what it says of the text model in the foreground."""
    file = folder / "config.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {**(found.get("text_config") or {}), **found}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SettingError(f"{file} can't be read: {why_unread(error)}") from None


def _load(folder: Path, **arguments: Any) -> PreTrainedModel:
    with boundary(SettingError, f"the model in {folder} can't be loaded"), quiet_transformers():
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are reported, and refused below
            **arguments,
        )
    wrong = [
        f"{names[0]} has the shape {tuple(names[1])}, the configuration says {tuple(names[2])}"
        for names in sorted(found["mismatched_keys"])
    ]
    if wrong:
        raise SettingError(
            f"the weights in {folder} are not those of its config.json: {'; '.join(wrong[:_SHOWN])}"
            + (f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else "")
        )
    missing, surplus = found["missing_keys"], found["unexpected_keys"]
    if missing or surplus or found["error_msgs"]:
        raise SettingError(
            f"the weights in {folder} are not those of its config.json: "
            + (_differences(missing, surplus) or "; ".join(map(str, found["error_msgs"])))
        )
    _check_tied(folder, model)
    return model.eval()


def _check_tied(folder: Path, model: PreTrainedModel) -> None:
    """Transformers unties what differs; other engines tie it all the same."""
    if not getattr(model.config.get_text_config(), "tie_word_embeddings", False):
        return
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if embedding is None or head is None or next(head.parameters()).is_meta:
        return
    if head.weight.data_ptr() != embedding.weight.data_ptr():
        raise SettingError(_TIED.format(folder))


def _check_tied_files(folder: Path) -> None:
    if not _config(folder).get("tie_word_embeddings"):
        return
    ends: dict[str, Tensor | None] = {"embed_tokens.weight": None, "lm_head.weight": None}
    for name, tensor in _stored(folder):
        for end in ends:
            if name.endswith(end):
                ends[end] = tensor
    embedding, head = ends.values()
    if embedding is not None and head is not None and not torch.equal(embedding, head):
        raise SettingError(_TIED.format(folder))


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _stored(folder: Path) -> Iterator[tuple[str, Tensor]]:
    if not any((folder / name).is_file() for name in (_WHOLE, _INDEX)):
        yield from _tensors(_load(folder, dtype="auto"))
        return
    for path in weight_files(folder):
        with opened_weights(path) as file:
            for name in sorted(file.keys()):
                yield name, file.get_tensor(name)


@contextmanager
def opened_weights(file: Path) -> Iterator[Any]:
    """A safetensors file.

    Raises:
        SettingError: when it is cut off or damaged.
    """
    try:
        with safe_open(file, "pt") as opened:
            yield opened
    except (SafetensorError, OSError) as error:
        raise SettingError(
            f"{file} is damaged or cut off ({error}); copy or download it again"
        ) from None


def _differences(missing: Iterable[str], surplus: Iterable[str]) -> str:
    """Names, the first few of each.

    Example:
        >>> _differences(["b", "a"], [])
        '2 are missing (a, b)'
    """
    said = []
    for names, what in ((missing, "missing"), (surplus, "surplus")):
        names = sorted(names)
        if names:
            shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
            verb = "is" if len(names) == 1 else "are"
            said.append(f"{len(names):,} {verb} {what} ({shown})")
    return " and ".join(said)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without Transformers' progress bars and its report of what it makes up."""
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
