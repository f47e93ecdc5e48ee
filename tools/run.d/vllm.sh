# The plugin in real vLLM: an environment of its own, and tests/vllm in it. Not part of `./run test`: it fetches 400 MB.
VLLM_VERSION=0.33.0
UV_VERSION=0.13.9

# Leaves .cache/venv-vllm: vLLM without the packages for NVIDIA cards, and what the tests need. A stamp of what went in
# says whether it has to be made again.
vllm_environment() {  # PYTHON
  local python=$1 venv=.cache/venv-vllm uv=.cache/venv-uv stamp
  stamp=$(cat tests/vllm/overrides.txt tests/vllm/requirements.txt tests/vllm/cuda_stand_ins.py | sha256sum)
  stamp="$VLLM_VERSION $UV_VERSION $("$python" --version) $stamp"
  [ "$(cat "$venv/made_of" 2>/dev/null)" = "$stamp" ] && return 0
  install_packages gcc binutils
  [ -x "$uv/bin/uv" ] || "$python" -m venv "$uv" >&2 || die "could not make $uv"
  "$uv/bin/pip" install --quiet --disable-pip-version-check "uv==$UV_VERSION" </dev/null >&2 ||
    die "pip could not install uv"
  say "fetching vLLM $VLLM_VERSION into $venv"
  "$uv/bin/uv" venv --quiet --clear --python "$python" "$venv" >&2 || die "could not make $venv"
  "$uv/bin/uv" pip install --quiet --python "$venv/bin/python" --override tests/vllm/overrides.txt \
    "vllm==$VLLM_VERSION" -r tests/vllm/requirements.txt </dev/null >&2 || die "uv could not install vLLM $VLLM_VERSION"
  local packages
  packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$venv/bin/python" tests/vllm/cuda_stand_ins.py "$packages" >&2 ||
    die "could not make the stand-ins for torch's CUDA libraries"
  echo "$stamp" >"$venv/made_of"
}

cmd_test_vllm() {  # [PYTEST_ARGUMENT...]
  local wheel python venv=$ROOT/.cache/venv-vllm
  wheel=$(build_wheel) || exit 1
  python=$(wheel_python) || exit 1
  vllm_environment "$python"
  .cache/venv-uv/bin/uv pip install --quiet --python "$venv/bin/python" --offline --no-deps --reinstall "$wheel" >&2 ||
    die "could not install $wheel"
  compile release spyre_test_plugins  # of the same build as the wheel's core, by its build id
  provide_test_model
  # From another folder: the package is the installed one. vLLM inspects a model's class in a process of its own, once,
  # and remembers the result in its cache.
  (cd build/dist && HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_CACHE_ROOT=$ROOT/.cache/vllm \
    SPYRE_PLUGIN_PATH=$ROOT/build/release/lib/spyre/test_plugins \
    "$venv/bin/python" -m pytest -p no:cacheprovider --rootdir "$ROOT/tests/vllm" "$ROOT/tests/vllm" "$@" </dev/null)
}
