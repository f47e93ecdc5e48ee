# What has to be installed, and installing it. Each set is asked for by the command that needs it.
PACKAGES_BUILD=(g++ cmake ninja-build ccache mold ca-certificates libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libboost-dev)
PACKAGES_TEST=(libgtest-dev libgmock-dev python3)
PACKAGES_BENCH=(libbenchmark-dev)
PACKAGES_MODEL=(python3 python3-venv ca-certificates)
PACKAGES_FUZZ=(clang-19 libclang-rt-19-dev llvm-19)
PACKAGES_RUST=(rustc-web cargo-web)  # Debian's newer Rust; its plain rustc is too old in Debian 12
CARGO_AT_LEAST=1.85

say() { echo "run: $*" >&2; }
die() { echo "run: $*" >&2; exit 1; }

is_debian() { command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; }

missing_packages() {  # NAME... -> the names that are not installed
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | sed -n 's/ installed$//p') || true
  local name
  for name in "$@"; do
    grep -qxF -- "$name" <<<"$installed" || echo "$name"
  done
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

require_root() {  # WHAT: asks for the password once, here, where it can be seen
  [ "$(id -u)" = 0 ] && return 0
  command -v sudo >/dev/null || die "not root, and there is no sudo; as root, run: $1"
  sudo true </dev/null || die "sudo refused; as root, run: $1"
}

apt_get() {  # retries: a mirror that hiccups must not fail a build
  local attempt log=.cache/apt.log
  mkdir -p .cache
  for attempt in 1 2 3; do
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" \
      </dev/null >"$log" 2>&1 && return 0
    tail -n 15 "$log" >&2
    [ "$attempt" = 3 ] || { say "apt-get $1 failed (attempt $attempt of 3); again in 10 s"; sleep 10; }
  done
  return 1
}

apt_updated=
install_packages() {  # NAME...: installs those that are missing; says so; does nothing when all are there
  is_debian || { say "no apt here: taking for granted that these are installed: $*"; return 0; }
  local missing
  mapfile -t missing < <(missing_packages "$@" | sort -u)
  [ ${#missing[@]} -gt 0 ] || return 0
  [ -z "${SPYRE_NO_INSTALL:-}" ] || die "missing packages (SPYRE_NO_INSTALL is set): ${missing[*]}"
  say "installing: ${missing[*]}"
  require_root "apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if [ -z "$apt_updated" ]; then
    apt_get update || die "apt-get update failed; is the network there?"
    apt_updated=1
  fi
  apt_get install -y --no-install-recommends "${missing[@]}" || die "could not install: ${missing[*]}"
}

version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]; }

cargo_version() { cargo --version 2>/dev/null | awk '{print $2}'; }

install_cargo() {  # any cargo that is new enough will do; Debian's rustc-web otherwise
  [ -d "${HOME:-/root}/.cargo/bin" ] && export PATH=$PATH:${HOME:-/root}/.cargo/bin
  local have
  have=$(cargo_version)
  if [ -n "$have" ]; then
    version_at_least "$have" "$CARGO_AT_LEAST" && return 0
    die "$(command -v cargo) is version $have, and $CARGO_AT_LEAST is needed: update it (rustup update), or remove it" \
      "(apt-get remove cargo rustc) and run this again, which then installs ${PACKAGES_RUST[*]}"
  fi
  install_packages "${PACKAGES_RUST[@]}"
  version_at_least "$(cargo_version)" "$CARGO_AT_LEAST" || die "cargo >= $CARGO_AT_LEAST is needed; found '$(cargo_version)'"
}

setup_build() {  # [release|debug|...]: one call of apt for everything a build of that preset needs
  local packages=("${PACKAGES_BUILD[@]}" "${PACKAGES_TEST[@]}" "${PACKAGES_BENCH[@]}")
  [ "${1:-}" = fuzz ] && packages+=("${PACKAGES_FUZZ[@]}")
  [ "${2:-}" = model ] && [ ! -s "$MODEL_FILE" ] && packages+=("${PACKAGES_MODEL[@]}")
  is_debian && [ -z "$(cargo_version)" ] && [ ! -x "${HOME:-/root}/.cargo/bin/cargo" ] && packages+=("${PACKAGES_RUST[@]}")
  install_packages "${packages[@]}"
  install_cargo
}

cmd_setup() {
  setup_build release model
  say "everything that build and test need is installed"
}
