#!/bin/sh
# Installs from the bundle that this script came in; no network is used.
#
#   tar -xf NAME.tar start.sh; sh start.sh NAME.tar [arguments of verl-env install]
#   cat NAME.tar.* | tar -xf - start.sh; sh start.sh NAME.tar.001 [arguments of verl-env install]
#
# It unpacks verl-env and uv into VERL_ENV_HOME/self, where install.sh keeps them too, and runs `verl-env install`.
# With VERL_ENV_NO_RUN=1 it stops before that. Every file is compared with its hash before it runs.
set -eu

fail() {
    printf 'verl-env: %s\nhint: %s\n' "$2" "$3" >&2
    exit "$1"
}

# Print the tar, whatever the bundle is: one file, or numbered pieces.
whole() {
    case "$FILE" in
        *.[0-9][0-9][0-9]) set -- "${FILE%.*}".[0-9][0-9][0-9]* ;;
        *) set -- "$FILE" ;;
    esac
    case "$FILE" in
        *.zst | *.zst.[0-9]*) cat "$@" | zstd -dc ;;
        *) cat "$@" ;;
    esac
}

find_python() {
    for candidate in "$DATA"/pythons/*/bin/python3 python3.12 python3.13 python3.11 python3.10 python3.14 python3 \
        /usr/bin/python3 /usr/local/bin/python3; do
        PYTHON=$("$candidate" -I -B -c 'import sys, zipfile
print(getattr(sys, "_base_executable", None) or sys.executable)
sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 15))' 2>/dev/null </dev/null) && return 0
    done
    fail 6 "no Python 3.10 or newer is here" "make the bundle with --with-python, or install one"
}

main() {
    FILE=${1:-}
    if [ ! -f "$FILE" ]; then
        fail 2 "name the bundle, or the first of its pieces" "sh start.sh NAME.tar"
    fi
    shift
    case "${VERL_ENV_HOME:-${XDG_DATA_HOME:-${HOME:-}}}" in
        "") fail 2 "HOME is not set, so there is no place to install to" "set HOME, or VERL_ENV_HOME=/some/folder" ;;
    esac
    if [ -n "${VERL_ENV_HOME:-}" ]; then
        DATA=$VERL_ENV_HOME
        BIN=${VERL_ENV_BIN_DIR:-$DATA/bin}
    else
        DATA=${XDG_DATA_HOME:-$HOME/.local/share}/verl-env
        BIN=${VERL_ENV_BIN_DIR:-${XDG_BIN_HOME:-$HOME/.local/bin}}
    fi
    mkdir -p "$DATA/self/tool" "$BIN"
    DATA=$(cd "$DATA" && pwd -P)
    WORK=$DATA/self/.bundle.$$
    mkdir "$WORK"
    trap 'rm -rf "$WORK"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # verl-env lies before the wheels, so a tar that stops reading there ends `whole` early, which is no failure.
    whole | head -c @HEAD@ | tar -xf - -C "$WORK" @NAMES@ ||
        fail 6 "\`$FILE\` cannot be unpacked" "is it whole, and is there room in $DATA?"
    if ! (cd "$WORK" && sha256sum -c - >/dev/null 2>&1) <<'END_OF_SUMS'; then
@SUMS@
END_OF_SUMS
        fail 6 "the verl-env in \`$FILE\` is not the one that was put there" "carry it again"
    fi
    ID=bundle-@ID@
    TOOL=$DATA/self/tool/$ID
    if [ ! -f "$TOOL/complete" ]; then
        install_tool
    fi
    if [ ! -e "$BIN/verl-env" ] || grep -qs "^# Made by verl-env" "$BIN/verl-env"; then
        quoted=$(printf '%s' "$TOOL" | sed -e "s/'/'\\\\''/g")
        printf '%s\n' '#!/bin/sh' "# Made by verl-env's install.sh." \
            "exec '$quoted/verl-env/bin/python' -I '$quoted/verl-env/bin/verl-env' \"\$@\"" >"$BIN/.verl-env.$$"
        chmod 755 "$BIN/.verl-env.$$"
        mv -f "$BIN/.verl-env.$$" "$BIN/verl-env"
    fi
    rm -rf "$WORK"
    trap - EXIT INT TERM
    if [ -n "${VERL_ENV_NO_RUN:-}" ]; then
        echo "verl-env: installed $BIN/verl-env" >&2
        exit 0
    fi
    exec "$TOOL/verl-env/bin/python" -I "$TOOL/verl-env/bin/verl-env" install --bundle "$FILE" "$@"
}

install_tool() {
    for archive in "$WORK"/python/*.tar; do
        name=${archive##*/}
        name=${name%.tar}
        if [ -f "$archive" ] && [ ! -d "$DATA/pythons/$name" ]; then
            mkdir -p "$DATA/pythons"
            tar -xf "$archive" -C "$WORK"
            mv "$WORK/$name" "$DATA/pythons/$name"
        fi
    done
    find_python
    "$PYTHON" -I -m zipfile -e "$WORK"/tool/uv-*.whl "$WORK/uv"
    for UV in "$WORK"/uv/uv-*.data/scripts/uv; do chmod +x "$UV"; done
    rm -rf "$TOOL"
    if ! (
        export UV_NO_CONFIG=1 UV_CACHE_DIR="$WORK/cache" UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
        cd "$WORK/tool" || exit 1
        "$UV" venv -q --python "$PYTHON" "$TOOL/verl-env" || exit 1
        "$UV" pip install -q --offline --no-index --find-links . --no-build --require-hashes \
            --python "$TOOL/verl-env/bin/python" -r requirements.txt
    ) >"$WORK/log" 2>&1 </dev/null; then
        sed -e 's/^/  | /' "$WORK/log" >&2
        fail 6 "verl-env could not be installed from \`$FILE\`" "carry it again; what was there before still works"
    fi
    "$TOOL/verl-env/bin/python" -I "$TOOL/verl-env/bin/verl-env" --version >&2
    echo "$ID" >"$TOOL/complete"
}

main "$@"
