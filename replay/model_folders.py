"""Folders of models: as they are named, or where Hugging Face's tools keep what they fetched.

Nothing is downloaded.  A name like ``org/name`` that is no folder is looked up in the Hub's local
cache, laid out as https://huggingface.co/docs/huggingface_hub/guides/manage-cache describes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*|[A-Za-z0-9][\w.-]*")


def model_folder(name: str | Path) -> Path:
    """The folder that is meant: itself, or the newest fetched files of the Hub's model.

    Args:
        name: of a folder, or of a model of the Hub.

    Returns:
        A folder that is there; else the path as it was given, for the caller to refuse.
    """
    path = Path(name)
    if path.exists() or not _HUB_NAME.fullmatch(str(name)):
        return path
    kept = hub_cache() / f"models--{str(name).replace('/', '--')}"
    try:
        commit = (kept / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return path
    found = kept / "snapshots" / commit
    return found if re.fullmatch(r"[\w.-]+", commit) and found.is_dir() else path


def fetching(name: str | Path) -> str:
    """What to do where a name may be the Hub's: the end of a sentence; empty for other paths.

    A folder that is there is none of the Hub's names.

    Example:
        >>> fetching("some/model")
        '; a model of the Hub is there once it is fetched: hf download some/model'
        >>> fetching("/models/mine")
        ''
    """
    if "/" not in str(name) or Path(name).exists() or not _HUB_NAME.fullmatch(str(name)):
        return ""
    return f"; a model of the Hub is there once it is fetched: hf download {name}"


def told_inside(folder: str | Path, file: str) -> str:
    """Where in a run's folder a model with this file is: the end of a sentence, or empty.

    Of several the one that is called ``final``, else the last by name.
    """
    path = Path(folder)
    found = sorted([*path.glob(f"*/{file}"), *path.glob(f"checkpoints/*/{file}")])
    if not found:
        return ""
    final = next((each for each in found if each.parent.name == "final"), found[-1])
    return f"; there is one in {final.parent}"


def hub_cache() -> Path:
    """The folder in which Hugging Face's tools keep what they fetch, by their own variables."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or os.path.join(home, "huggingface")
    usual = os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    found = os.environ.get("HF_HUB_CACHE") or usual
    return Path(os.path.expandvars(os.path.expanduser(found)))
