# For those who change the code: fuzzers, formatting, lint.

# The server's HTTP interface, by what its own OpenAPI document says.
fuzz_api() {
  local seconds=$1 venv=.cache/venv-schema
  setup_build release
  install_packages python3 python3-venv
  compile release spyre
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >&2 || die "could not make $venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/clients/requirements-schema.txt </dev/null >&2 ||
    die "pip could not install schemathesis"
  say "fuzzing the HTTP interface for $seconds s"
  tests/clients/schema_fuzz.sh build/release/bin/spyre "$venv/bin/python" "$seconds" >build/release/schema_fuzz.log 2>&1 ||
    { tail -n 60 build/release/schema_fuzz.log >&2; die "api: schemathesis found something (build/release/schema_fuzz.log)"; }
}

cmd_fuzz() {
  local only=${1:-} seconds=${2:-30} found=0
  [[ $only =~ ^[0-9]+$ ]] && { seconds=$only; only=; }
  if [ "$only" = api ]; then
    fuzz_api "$seconds"
    return
  fi
  setup_build fuzz
  compile fuzz
  local binary name corpus
  for binary in build/fuzz/bin/*_fuzz; do
    [ -x "$binary" ] || continue
    name=$(basename "$binary" _fuzz)
    [ -z "$only" ] || [ "$only" = "$name" ] || [ "$only" = "${name}_fuzz" ] || continue
    found=1
    # New inputs go to build/fuzz/corpus; the committed seeds are only read.
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus" build/fuzz/crashes
    local seeds=()
    [ -d "tests/data/fuzz/$name" ] && seeds=("tests/data/fuzz/$name")
    say "fuzzing $name for $seconds s"
    "$binary" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/crashes/$name-" "$corpus" "${seeds[@]}" </dev/null >"build/fuzz/$name.log" 2>&1 ||
      { tail -n 40 "build/fuzz/$name.log" >&2; die "$name: the fuzzer found something (input in build/fuzz/crashes)"; }
    grep -E '^(stat::number_of_executed_units|stat::peak_rss_mb)' "build/fuzz/$name.log" >&2 || true
  done
  [ "$found" = 1 ] || die "no fuzzer named '$only'; there are: api $(basename -s _fuzz -a build/fuzz/bin/*_fuzz 2>/dev/null | xargs)"
  [ -n "$only" ] || fuzz_api "$seconds"
}

source_files() { git ls-files --cached --others --exclude-standard -- '*.cc' '*.h' '*.cpp' | xargs -r ls -d 2>/dev/null; }

cmd_format() {
  install_packages git clang-format-19
  local files
  mapfile -t files < <(source_files)
  [ ${#files[@]} -gt 0 ] || return 0
  if [ "${1:-}" = --check ]; then
    clang-format-19 --dry-run --Werror "${files[@]}"
  else
    clang-format-19 -i "${files[@]}"
  fi
}

changed_files() { { git diff --name-only HEAD; git ls-files --others --exclude-standard; } | sort -u; }

cmd_lint() {
  install_packages git clang-tidy-19
  [ -f build/release/compile_commands.json ] || cmd_build release >&2
  local files
  case "${1:-}" in
    all) mapfile -t files < <(source_files | grep '\.cc$') ;;
    '') mapfile -t files < <(changed_files | grep '\.cc$' || true) ;;
    *) files=("$@") ;;
  esac
  [ ${#files[@]} -gt 0 ] || { say "no C++ source has changed since the last commit; ./run lint all looks at every file"; return 0; }
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(compile_jobs)" clang-tidy-19 --quiet --warnings-as-errors='*' -p build/release ||
    die "clang-tidy has remarks (above)"
}
