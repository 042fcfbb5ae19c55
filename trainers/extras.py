"""Which package brings what an import needs: one line where it is missing.

Known before anything else is imported: whatever is missing may be what the rest needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_IMPORT_NAMES = {"dotenv": "python-dotenv", "yaml": "pyyaml"}
"""Import names that are not their distribution's, hyphens and underscores aside."""

PACKAGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "": (
            *("aiohttp", "aiolimiter", "charset_normalizer", "dotenv", "gymnasium", "idna"),
            *("jinja2", "lxml", "lxml_html_clean", "numpy", "pyarrow", "pyjson5", "pypdf", "rich"),
            *("tantivy", "tenacity", "tokenizers", "trafilatura", "tyro", "yarl"),
        ),
        "train": ("pydantic", "yaml", "safetensors", "tensorboard", "torch", "transformers"),
        "lora": ("peft",),
        "vllm": ("vllm",),
        "openrlhf": ("openrlhf",),
        "ray": ("ray",),
        "smollm2": ("gguf",),
        "plots": ("matplotlib",),
    }
)
"""Import names by the extra that brings them; the empty one is drv-env itself."""


def distribution_of(module: str) -> str:
    """What an import name is called in the package index.

    Example:
        >>> distribution_of("yaml"), distribution_of("torch")
        ('pyyaml', 'torch')
    """
    return _IMPORT_NAMES.get(module, module)


def remedy_for(extra: str) -> str:
    """What installs an extra.

    Example:
        >>> remedy_for("train"), remedy_for("")
        ("pip install 'drv-env[train]'", 'pip install drv-env')
    """
    return f"pip install 'drv-env[{extra}]'" if extra else "pip install drv-env"


def lacking(error: ImportError) -> str | None:
    """A line about the package that is not installed; None where it is none of ours.

    Example:
        >>> lacking(ModuleNotFoundError("No module named 'torch'", name="torch.nn"))
        "this needs torch, which is not installed: pip install 'drv-env[train]'"
    """
    module = (error.name or "").partition(".")[0]
    for extra, modules in PACKAGES.items():
        if module in modules and isinstance(error, ModuleNotFoundError):
            name = distribution_of(module)
            return f"this needs {name}, which is not installed: {remedy_for(extra)}"
    return None
