"""Architectures of Transformers that are trained and scored here, by their ``model_type``.

``tests/trainers/test_architectures.py`` compares every one with Transformers' own loss, gradients
and log-probs.  Others are tried when they are loaded (:mod:`agents.engines.final_logits`) and
refused where they differ.  Plain names, and nothing imported.
"""

from __future__ import annotations

FULL_ATTENTION = (
    "apertus",
    "arcee",
    "cohere",
    "ernie4_5",
    "ernie4_5_moe",
    "gemma",
    "glm",
    "glm4",
    "glm4_moe",
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gptj",
    "granite",
    "granitemoe",
    "granitemoeshared",
    "helium",
    "hunyuan_v1_dense",
    "llama",
    "minimax_m2",
    "mistral",
    "mixtral",
    "nanochat",
    "olmo",
    "olmo2",
    "olmoe",
    "opt",
    "phi",
    "phi3",
    "phimoe",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "seed_oss",
    "smollm3",
    "starcoder2",
)
"""Every layer attends to all that came before, unless ``config.json`` gives it a window: fine-tuned
and reinforced, packed too, scored from kept keys and values, played by the Transformers engine."""

NOT_PACKED = ("nemotron", "stablelm")
"""The same, but their layers are not handed what packing tells them: ``packed`` is refused."""

OTHER_ATTENTION = (
    "cohere2",
    "exaone4",
    "gemma2",
    "gemma3_text",
    "gpt_oss",
    "granite_swa",
    "jamba",
    "ministral",
    "olmo3",
    "qwen3_next",
    "recurrent_gemma",
    "vaultgemma",
)
"""Some layers slide a window or carry a state: fine-tuned, and reinforced with ``rl.scoring plain``
on vLLM's rollouts; not packed."""
