#!/usr/bin/env bash
# The published run of DR-Venus-4B-RL (arXiv 2604.19859) on 2 nodes × 8 GPUs of 80 GB: 16 questions
# × 8 rollouts a step, 261,000 tokens of context, 200 turns, live tools, an outcome by a judge.
#
# Needs, on both nodes: the extras `openrlhf` and `vllm`, flash-attn, ring-flash-attn; the keys of
# the tools and the judge in the environment before Ray starts (drv doctor); and one shared folder
# for model, data and run.
#
#   ray start --head --port 6379              on the first node
#   ray start --address FIRST_NODE:6379       on the second
#   MODEL=/shared/paper-sft/checkpoints/final TASKS=/shared/redsearcher_rl_1k.jsonl \
#       OUT=/shared/runs/paper-igpo examples/openrlhf/igpo_16_gpus.sh
#
# Other than published: FSDP is DeepSpeed's ZeRO-3; rollouts are sampled without top-p 0.95, which
# the log-probs would have to know of; stragglers are asked for their answer after MAX_SECONDS of
# their own, not when 90% of the batch are done.
set -euo pipefail

MODEL=${MODEL:?the checkpoint of fine-tuning}
TASKS=${TASKS:?questions with gold answers}
OUT=${OUT:?a folder that both nodes see}
MAX_SECONDS=${MAX_SECONDS:-5400}
export RAY_ADDRESS=${RAY_ADDRESS:-auto}

exec drv train igpo --preset paper-rl --backend openrlhf --out "$OUT" \
    --model.folder "$MODEL" --model.chat-template qwen3-thinking \
    --tasks.source "$TASKS" --rules.max-seconds "$MAX_SECONDS" \
    --rl.rollouts async --rl.rollout.stragglers wait --rl.packed --rl.microbatch-tokens 262144 \
    --rl.loss.importance-cap 2.0 --rl.steps 63 --rl.save-every 5 \
    --cluster.nodes 2 --cluster.gpus 8 --cluster.engines 16 --cluster.colocate \
    --cluster.zero-stage 3 \
    "$@" \
    -- --ds.ring_attn_size 8 --ds.ring_attn_head_stride 2 --vllm.gpu_memory_utilization 0.7
