# What the measurements run: wrk, workerd, the node, the sample actors, our own programs. Sourced from the root of
# the checkout after scripts/lib/target-dir.sh. Each function installs or builds what is missing, says so on
# stderr, and sets a variable.
#
# WASMKEEP_BIN and WASMKEEP_GUESTS, when set, are taken as they are and nothing of ours is built.

perf_packages() {
    # shellcheck source=scripts/lib/guest-toolchain.sh
    source scripts/lib/guest-toolchain.sh
    echo "Installing $*…" >&2
    apt_install "$@" >&2
}

perf_wrk() {
    command -v wrk >/dev/null || perf_packages wrk
}

# WORKERD_BIN
perf_workerd() {
    local folder=${WASMKEEP_CACHE:-$HOME/.cache/wasmkeep}/workerd
    WORKERD_BIN=$folder/node_modules/@cloudflare/workerd-linux-64/bin/workerd
    if [ -x "$WORKERD_BIN" ] && cmp -s perf/peers/workerd/package.json "$folder/package.json"; then
        return
    fi
    command -v npm >/dev/null || perf_packages npm
    echo "Installing workerd…" >&2
    mkdir -p "$folder"
    cp perf/peers/workerd/package.json "$folder/"
    # Its install script only looks for the binary that the package for this platform brings.
    (cd "$folder" && npm install --no-package-lock --ignore-scripts --no-audit --no-fund --silent) >&2
    if [ ! -x "$WORKERD_BIN" ]; then
        echo "workerd has no binary for this machine; it comes for Linux on x86-64." >&2
        exit 1
    fi
}

# WASMKEEP_BIN, WASMKEEP_GUESTS
perf_node() {
    if [ -z "${WASMKEEP_GUESTS:-}" ]; then
        WASMKEEP_GUESTS=$CARGO_TARGET_DIR/guests
        scripts/build-guests --out "$WASMKEEP_GUESTS" >&2
    fi
    if [ -z "${WASMKEEP_BIN:-}" ]; then
        echo "Building the node with optimisations…" >&2
        cargo build --quiet --locked --release --package wasmkeep-cli
        WASMKEEP_BIN=$CARGO_TARGET_DIR/release/wasmkeep
    fi
}

# Runs one of our own programs, by name. Built without optimisations: none of them is what is measured, and what
# they depend on is optimised in either case.
perf_tool() {
    local program=$1
    shift
    cargo run --quiet --locked --package wasmkeep-perf --bin "$program" -- "$@"
}
