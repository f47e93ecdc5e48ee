#!/usr/bin/env bash
# lm-eval's local-completions (echo and logprobs) against the real server, compared with transformers. Fetches torch:
# `./run test lm-eval` calls it.
#
#   run.sh SPYRE PYTHON
set -euo pipefail
SPYRE=$1 PYTHON=$2
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=/dev/null
source "$HERE/server.sh"
start_server
"$PYTHON" "$HERE/lm_eval/make_task.py" "$WORK/task"
OPENAI_API_KEY=$KEY HF_HUB_OFFLINE=1 HF_DATASETS_CACHE=$WORK/datasets "$PYTHON" "$HERE/lm_eval/compare.py" "$BASE" "$WORK/model" "$WORK/task"
stop_server
