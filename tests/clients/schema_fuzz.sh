#!/usr/bin/env bash
# schemathesis reads /openapi.json of the real server on a tiny model and sends it what its schemas allow and forbid:
# no answer may be a 5xx or of a shape that the document does not know. `./run fuzz api [SECONDS]` calls it.
#
#   schema_fuzz.sh SPYRE PYTHON SECONDS
set -euo pipefail
SPYRE=$1 PYTHON=$2 SECONDS_=$3
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=/dev/null
source "$HERE/server.sh"
start_server
"$(dirname "$PYTHON")/schemathesis" run "$BASE/openapi.json" --header "Authorization: Bearer $KEY" --workers 2 --max-time "$SECONDS_" \
  --max-response-time 20 --suppress-health-check all --checks not_a_server_error,status_code_conformance,content_type_conformance
"$PYTHON" "$HERE/metrics_parser.py" "$BASE" "$KEY"
stop_server
