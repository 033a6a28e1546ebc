# Sets CARGO_TARGET_DIR. Sourced by the scripts that build, from the root of the checkout.
#
# An ordinary clone builds in ./target. Where clones come and go (CI), everything built is kept outside of them,
# so that the next run starts warm.
if [ -z "${CARGO_TARGET_DIR:-}" ]; then
    if [ -n "${CI:-}" ]; then
        CARGO_TARGET_DIR=${WASMKEEP_CACHE:-$HOME/.cache/wasmkeep}/target
    else
        CARGO_TARGET_DIR=$PWD/target
    fi
fi
export CARGO_TARGET_DIR
