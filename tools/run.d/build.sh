# Configure and compile one preset of CMakePresets.json into build/PRESET.
PRESETS="release debug asan-ubsan tsan fuzz"

compile_jobs() {  # as many as there are cores, but no more than memory carries (a heavy file takes 1.5 GB)
  [ -n "${JOBS:-}" ] && { echo "$JOBS"; return; }
  local cores free_kb limit used
  cores=$(nproc)
  free_kb=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  if [ -r /sys/fs/cgroup/memory.max ] && limit=$(cat /sys/fs/cgroup/memory.max) && [ "$limit" != max ]; then
    used=$(cat /sys/fs/cgroup/memory.current)
    [ $(((limit - used) / 1024)) -lt "$free_kb" ] && free_kb=$(((limit - used) / 1024))
  fi
  local by_memory=$((free_kb / 1536 / 1024))
  [ "$by_memory" -lt 1 ] && by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

check_preset() {
  [[ " $PRESETS " == *" $1 "* ]] || { echo "run: unknown preset '$1'; there are: $PRESETS" >&2; exit 2; }
}

# ThreadSanitizer of gcc 12 cannot live with the widest address randomisation of newer kernels.
without_aslr() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then setarch "$(uname -m)" -R "$@"; else "$@"; fi
}

compile() {  # PRESET [TARGET...]
  local preset=$1
  shift
  local jobs
  jobs=$(compile_jobs)
  say "building $preset with $jobs jobs (log: build/$preset/configure.log)"
  mkdir -p "build/$preset"
  cmake --preset "$preset" >"build/$preset/configure.log" 2>&1 </dev/null ||
    { tail -n 30 "build/$preset/configure.log" >&2; die "cmake could not configure the preset $preset"; }
  local wrap=()
  [ "$preset" = tsan ] && wrap=(without_aslr)
  "${wrap[@]}" ninja -C "build/$preset" -j "$jobs" "$@" </dev/null >&2 || die "the build of $preset failed (see above)"
}

cmd_build() {
  local preset=${1:-release}
  check_preset "$preset"
  setup_build "$preset"
  compile "$preset"
  [ -x "build/$preset/bin/spyre" ] && echo "build/$preset/bin/spyre"
  return 0
}

cmd_clean() { rm -rf "$ROOT/build"; }
