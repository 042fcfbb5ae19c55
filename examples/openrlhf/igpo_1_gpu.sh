#!/usr/bin/env bash
# IGPO on one GPU, on which trainer and engine take turns, in the demo's invented webs.
#
# Needs: 1 GPU with 80 GB, 128 GB of main memory (Adam's state is there), the extras `openrlhf` and
# `vllm`, flash-attn; no keys.  Model: of up to about 4B parameters; CONTEXT bounds the logits of a
# row (docs/openrlhf.md, sizing).
#
#   MODEL=models/qwen3-1.7b examples/openrlhf/igpo_1_gpu.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

MODEL=${MODEL:?a folder as save_pretrained writes it}
OUT=${OUT:-runs/igpo-1-gpu}
CONTEXT=${CONTEXT:-16384}

exec drv train igpo --backend openrlhf --out "$OUT" \
    --model.folder "$MODEL" --model.chat-template qwen3-thinking \
    --model.precision bfloat16 --model.gradient-checkpointing \
    --tasks.source world --tools.kind offline --tools.world 0 1 2 3 \
    --rules.max-context "$CONTEXT" --rules.max-turn-tokens 2048 --rules.max-turns 20 \
    --rl.steps 40 --rl.tasks-per-step 8 --rl.group-size 8 --rl.minibatches 2 \
    --rl.learning-rate 1e-6 --rl.loss.importance-cap 2.0 \
    --cluster.gpus 1 --cluster.engines 1 --cluster.colocate --cluster.zero-stage 2 \
    "$@" \
    -- --ds.adam_offload --vllm.gpu_memory_utilization 0.5
