# The Python wheel: built into build/dist, and tested as its users have it, installed in an environment of its own.
PACKAGES_WHEEL=(python3 python3-dev python3-venv)

wheel_python() {  # the interpreter to build for
  local python=${PYTHON:-python3}
  command -v "$python" >/dev/null || die "there is no $python"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$python is $("$python" --version); Python 3.11 or newer is needed"
  command -v "$python"
}

python_tag() { "$1" -c 'import sys; print("cp%d%d" % sys.version_info[:2])'; }

# An environment with exactly what a file of pinned requirements says; made anew when the file changes.
provide_venv() {  # PYTHON FOLDER REQUIREMENTS
  local python=$1 venv=$2 stamp
  stamp="$("$python" -c 'import sys; print(sys.executable, sys.version)') $(sha256sum <"$3")"
  [ "$(cat "$venv/made_of" 2>/dev/null)" = "$stamp" ] && return 0
  say "making $venv"
  rm -rf "$venv"
  "$python" -m venv "$venv" >&2 || die "could not make $venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --no-deps -r "$3" </dev/null >&2 ||
    die "pip could not install $3"
  echo "$stamp" >"$venv/made_of"
}

# The libraries that a bare system lacks (fmt, spdlog) are copied into the wheel, and its tag says which systems have the
# rest: auditwheel knows both.
build_wheel() {  # -> the wheel's path
  setup_build release
  [ -n "${PYTHON:-}" ] || install_packages "${PACKAGES_WHEEL[@]}"
  local python tag venv out log jobs name
  python=$(wheel_python) || exit 1
  tag=$(python_tag "$python")
  venv=$ROOT/.cache/venv-wheel-$tag
  provide_venv "$python" "$venv" python/requirements-build.txt
  out=$ROOT/build/wheel-out-$tag
  log=$ROOT/build/wheel-$tag.log
  jobs=$(compile_jobs)
  rm -rf "$out"
  mkdir -p "$out" build/dist
  say "building the wheel for $tag with $jobs jobs (log: build/wheel-$tag.log)"
  # CC and CXX as the presets find them: Python's own names for the same compilers would miss the compiler cache.
  CC=${CC:-cc} CXX=${CXX:-c++} CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$venv/bin/pip" --verbose --disable-pip-version-check wheel \
    --no-build-isolation --no-deps --wheel-dir "$out" ./python >"$log" 2>&1 </dev/null ||
    { tail -n 40 "$log" >&2; die "the wheel could not be built"; }
  PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair --wheel-dir "$out/repaired" "$out"/*.whl >>"$log" 2>&1 </dev/null ||
    { tail -n 40 "$log" >&2; die "the wheel could not be completed with its libraries"; }
  name=$(cd "$out/repaired" && echo *.whl)
  mv "$out/repaired/$name" "build/dist/$name"
  echo "$ROOT/build/dist/$name"
}

cmd_wheel() { build_wheel; }

cmd_test_wheel() {  # [PYTEST_ARGUMENT...]
  local wheel python venv
  wheel=$(build_wheel) || exit 1
  python=$(wheel_python) || exit 1
  venv=$ROOT/.cache/venv-wheel-test-$(python_tag "$python")
  provide_venv "$python" "$venv" python/requirements-test.txt
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$wheel" </dev/null >&2 ||
    die "pip could not install $wheel"
  compile release spyre_test_plugins  # of the same build as the wheel's core, by its build id
  # From another folder: the package is the installed one, not the sources.
  (cd build/dist && SPYRE_TEST_WHEEL=$wheel SPYRE_PLUGIN_PATH=$ROOT/build/release/lib/spyre/test_plugins \
    "$venv/bin/python" -m pytest -p no:cacheprovider --rootdir "$ROOT/python/tests" \
    "$ROOT/python/tests" "$@" </dev/null)
}
