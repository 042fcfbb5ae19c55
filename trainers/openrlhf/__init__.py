"""IGPO, GRPO and SFT on many devices: OpenRLHF (Ray, DeepSpeed, vLLM) with our episodes.

:func:`trainers.openrlhf.launch.run_openrlhf` is the door.  Only :mod:`trainers.openrlhf.inside`
imports OpenRLHF; its processes import it.
"""
