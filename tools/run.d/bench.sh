# Benchmarks: `spyre bench`, micro-benchmarks, and the peers beside ours.

# Micro-benchmarks are not part of a normal build. (floor_bench has a name of its own, below.)
bench_kernels() {
  local names name
  mapfile -t names < <(ninja -C build/release -t targets all | sed -n 's/^\([a-z_]*_bench\): phony$/\1/p' | grep -vx floor_bench)
  [ ${#names[@]} -gt 0 ] || die "there are no micro-benchmarks"
  compile release "${names[@]}"
  for name in "${names[@]}"; do
    say "$name"
    "build/release/bin/$name" "$@"
  done
}

# Every kernel of this machine against the share of the machine's limit that it must reach; fails below one.
bench_floor() {
  compile release floor_bench
  build/release/bin/floor_bench "$@"
}

bench_serving() {
  local venv=.cache/venv-serving
  install_packages python3 python3-venv
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >&2 || die "could not make $venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --no-deps -r benchmarks/serving/requirements.txt \
    </dev/null >&2 || die "pip could not install the rival"
  "$venv/bin/python" benchmarks/serving/compare.py "$MODEL_FILE" "$@"
}

# The peers install themselves; what they need of the system is Python, npm and (vLLM, which compiles) a compiler.
bench_peers() {
  install_packages python3 python3-venv gcc g++ binutils
  command -v npm >/dev/null || install_packages nodejs npm
  python3 benchmarks/peers/run.py "$@"
}

# How a step grows with tokens, sequences, context, depth, ladders and threads.
bench_scale() {
  install_packages python3 python3-venv
  python3 benchmarks/scale/scale.py "$@"
}

# The card's padding under a load of mixed lengths, and what finer ladders cost.
bench_ladders() { python3 benchmarks/scale/ladders.py "$MODEL_FILE" "$@"; }

# What is named is a function bench_NAME; anything else goes to `spyre bench` as it is.
cmd_bench() {
  setup_build release model
  compile release
  local what=${1:-}
  case "$what" in
    kernels|floor|peers|scale) ;;  # on random data
    *) fetch_model || die "could not fetch the demo model; the lines above say why" ;;
  esac
  case "$what" in
    kernels|floor|serving|peers|scale|ladders) shift; "bench_$what" "$@" ;;
    *) build/release/bin/spyre bench "$MODEL_FILE" "$@" ;;
  esac
}
