#!/usr/bin/env bash
# Unchanged clients talk to the real program on a tiny model: the official openai packages for Python and Node, LangChain,
# Prometheus' parser. `./run test clients` calls it.
#
#   run.sh SPYRE PYTHON [NODE_DIR]   the program; a Python with requirements.txt installed; a folder with node_modules (none:
#                                    the Node client is left out)
set -euo pipefail
SPYRE=$1 PYTHON=$2 NODE_DIR=${3:-}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=/dev/null
source "$HERE/server.sh"
start_server

"$PYTHON" "$HERE/openai_client.py" "$BASE" "$KEY"
"$PYTHON" "$HERE/langchain_client.py" "$BASE" "$KEY"
if [ -n "$NODE_DIR" ]; then
  cp "$HERE/openai_node.mjs" "$NODE_DIR/"
  (cd "$NODE_DIR" && node openai_node.mjs "$BASE" "$KEY")
fi
"$PYTHON" "$HERE/metrics_parser.py" "$BASE" "$KEY"
stop_server
echo "clients: all passed"
