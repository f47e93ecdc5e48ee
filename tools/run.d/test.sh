# The tests: unit tests and system tests by ctest; mutants; the same tests under sanitizers.

# run_ctest PRESET [CTEST_ARGUMENT...]: ends with one line that is the result
run_ctest() {
  local preset=$1 log=build/$1/ctest.log wrap=() rc=0
  shift
  [ "$preset" = tsan ] && wrap=(without_aslr)
  "${wrap[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" "$@" \
    </dev/null 2>&1 | sed -u '/^ *Start *[0-9]*:/d' | tee "$log" || rc=$?
  local skipped summary
  skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
  summary=$(sed -n 's/^\([0-9]*% tests passed.*\)$/\1/p' "$log")
  summary="$preset: ${summary:-no test ran}, $skipped skipped"
  if [ "$rc" = 0 ]; then
    echo "run: PASSED ($summary)"
  else
    echo "run: FAILED ($summary; log: $log)"
    exit 1
  fi
}

# Tests on the real model are part of the suite; without network they are skipped, and counted as skipped.
provide_test_model() {
  if [ -n "${SPYRE_TEST_MODEL:-}" ]; then return; fi
  if fetch_model; then
    export SPYRE_TEST_MODEL=$ROOT/$MODEL_FILE
  else
    say "the demo model could not be fetched: the tests that need it will be skipped"
  fi
}

cmd_test() {
  if [ "${1:-}" = mutants ]; then
    shift
    cmd_mutants "$@"
    return
  fi
  if [ "${1:-}" = rules ]; then
    shift
    cmd_rules "$@"
    return
  fi
  if [ "${1:-}" = wheel ]; then
    shift
    cmd_test_wheel "$@"
    return
  fi
  if [ "${1:-}" = vllm ]; then
    shift
    cmd_test_vllm "$@"
    return
  fi
  if [ "${1:-}" = clients ]; then
    cmd_clients
    return
  fi
  if [ "${1:-}" = lm-eval ]; then
    cmd_lm_eval
    return
  fi
  if [ "${1:-}" = instructions ]; then
    shift
    cmd_instructions "$@"
    return
  fi
  if [ "${1:-}" = soak ]; then
    shift
    cmd_soak "$@"
    return
  fi
  setup_build release model
  install_callgrind
  compile release
  provide_test_model
  if [ $# -gt 0 ]; then run_ctest release -R "$1"; else run_ctest release; fi
}

# Drops the check of every lowering rule of the card, one by one: a test that carries its number must turn red.
cmd_rules() {
  setup_build release
  install_packages python3
  compile release plugin_test
  python3 tools/rules.py --keep "$@"
}

# For the instruction counts, which are skipped without it: 14 MB to fetch, half a minute of the tests on two cores.
install_callgrind() {
  if [ -z "${SPYRE_NO_INSTALL:-}" ]; then install_packages valgrind; fi
}

# The counts alone; --record writes this compiler's table in tests/instructions/counts.json.
cmd_instructions() {
  setup_build release
  install_callgrind
  compile release hot_paths
  local compiler
  compiler=$(sed -n 's/.*--compiler" "\([^"]*\)".*/\1/p' build/release/tests/instructions/CTestTestfile.cmake | head -1)
  python3 tests/instructions/count.py --program build/release/bin/hot_paths --compiler "$compiler" "$@"
}

# Clients that others wrote, unchanged, against the real program: not part of `./run test`, because they are fetched.
cmd_clients() {
  setup_build release
  install_packages python3 python3-venv
  command -v npm >/dev/null || install_packages nodejs npm
  compile release spyre
  local venv=.cache/venv-clients node=.cache/node-clients
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >&2 || die "could not make $venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/clients/requirements.txt </dev/null >&2 || die "pip could not install the clients"
  mkdir -p "$node"
  cp tests/clients/package.json "$node/"
  (cd "$node" && npm install --silent --no-audit --no-fund </dev/null >&2) || die "npm could not install the clients"
  tests/clients/run.sh build/release/bin/spyre "$venv/bin/python" "$ROOT/$node"
}

# Minutes of rude clients on a tiny model: counters, blocks and memory must come out exact.
cmd_soak() {
  setup_build release
  install_packages python3
  compile release spyre spyre_platform_plugin
  python3 tests/clients/soak.py --spyre build/release/bin/spyre --model tests/golden/data/llama_gqa64 --requests "${1:-20000}"
}

# Scores of lm-eval through the server beside those of transformers: fetches torch (some GB).
cmd_lm_eval() {
  setup_build release
  install_packages python3 python3-venv
  compile release spyre
  local venv=.cache/venv-lm-eval
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >&2 || die "could not make $venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/clients/lm_eval/requirements.txt </dev/null >&2 || die "pip could not install lm-eval"
  tests/clients/lm_eval/run.sh build/release/bin/spyre "$venv/bin/python"
}

cmd_mutants() {
  setup_build release
  install_packages python3
  python3 tools/mutants.py "$@"
}

cmd_sanitize() {
  local preset
  for preset in "${@:-asan-ubsan}"; do
    [ "$preset" = asan-ubsan ] || [ "$preset" = tsan ] || { echo "run: sanitize asan-ubsan or tsan, not '$preset'" >&2; exit 2; }
  done
  if [ $# = 0 ]; then set -- asan-ubsan tsan; fi
  setup_build release model
  provide_test_model
  # Leaks of the Rust archive's lazily made statics are still reachable, so LeakSanitizer stays on.
  export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
  export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
  export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
  for preset in "$@"; do
    compile "$preset"
    (run_ctest "$preset") || exit 1
  done
}
