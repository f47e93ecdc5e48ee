# Sourced by the scripts beside it, which set SPYRE, PYTHON and HERE: a real server on a tiny model.
KEY=client-test-key
WORK=$(mktemp -d)
SERVER=
BASE=

cleanup() {
  if [ -n "$SERVER" ]; then
    kill "$SERVER" 2>/dev/null || true
    wait "$SERVER" 2>/dev/null || true
  fi
  rm -rf "$WORK"
}
trap cleanup EXIT

server_failed() { echo "clients: $1" >&2; cat "$WORK/err" >&2; exit 1; }

start_server() {
  "$PYTHON" "$HERE/make_model.py" "$WORK/model"
  SPYRE_API_KEY=$KEY "$SPYRE" serve "$WORK/model" --served-model-name tiny other-name --port 0 >"$WORK/out" 2>"$WORK/err" &
  SERVER=$!
  local i
  for ((i = 0; i < 600; ++i)); do
    grep -q 'spyre: ready' "$WORK/out" && break
    kill -0 "$SERVER" 2>/dev/null || server_failed 'the server ended'
    sleep 0.1
  done
  BASE=$(sed -n 's|.* at \(http://[^ ]*\) .*|\1|p' "$WORK/out")
  [ -n "$BASE" ] || server_failed 'the server did not get ready'
}

stop_server() {
  kill -TERM "$SERVER"
  local code=0
  wait "$SERVER" || code=$?
  SERVER=
  [ "$code" = 0 ] || server_failed "the server ended with $code"
}
