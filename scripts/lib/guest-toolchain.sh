# What builds WebAssembly components here: rustup's wasm32-wasip2 target, or Debian's rustc-web, which has no
# compiled standard library for it but brings its source. Sourced by scripts/setup and scripts/build-guests.

# Packages of the Debian route.
GUEST_PACKAGES=(rustc-web cargo-web rust-web-src wasi-libc)
# Where Debian's wasi-libc keeps what std links against.
GUEST_LIBC=/usr/lib/wasm32-wasi

guest_toolchain_is_rustup() {
    [ -d "$(rustc --print target-libdir --target wasm32-wasip2 2>/dev/null)" ]
}

guest_toolchain_is_debian() {
    [ -x /usr/bin/rustc ] && [ -x /usr/bin/cargo ] && [ -e "$GUEST_LIBC/libc.a" ] &&
        [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library/std" ]
}

# Ends with one sentence when neither toolchain is there and none can be installed.
guest_toolchain_require() {
    if guest_toolchain_is_rustup || guest_toolchain_is_debian; then
        return
    fi
    if ! command -v apt-get >/dev/null; then
        echo "This machine cannot build WebAssembly components: run 'rustup target add wasm32-wasip2'." >&2
        exit 1
    fi
    echo "Installing Debian's Rust for WebAssembly (${GUEST_PACKAGES[*]}), about 150 MB…"
    apt_install "${GUEST_PACKAGES[@]}"
    if ! guest_toolchain_is_debian; then
        echo "The packages ${GUEST_PACKAGES[*]} are installed but do not build components on this release;" \
            "run 'rustup target add wasm32-wasip2' instead." >&2
        exit 1
    fi
}

# Installs packages, refreshing the package lists only when that is what is missing.
apt_install() {
    local sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
    "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null 2>&1 && return
    "${apt[@]}" update
    "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null
}

# cargo with its arguments, for wasm32-wasip2.
guest_cargo() {
    local command=$1
    shift
    if guest_toolchain_is_rustup; then
        cargo "$command" --target wasm32-wasip2 "$@"
        return
    fi
    # The linker that makes components comes with rustup's own toolchain, Debian's compiler has none.
    local linkers
    linkers=$(rustc --print sysroot)/lib/rustlib/$(rustc --print host-tuple)/bin
    RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 PATH="$linkers/gcc-ld:$PATH" \
        CARGO_TARGET_WASM32_WASIP2_LINKER=$linkers/wasm-component-ld \
        CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS="-L native=$GUEST_LIBC -C link-self-contained=no" \
        /usr/bin/cargo "$command" -Zbuild-std=std,panic_abort --target wasm32-wasip2 "$@"
}
