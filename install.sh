#!/bin/sh
# verl-env installer: brings a pinned uv, installs verl-env as a uv tool of its own, runs `verl-env install`.
#
#   curl -fsSL https://github.com/verl-env/verl-env/releases/latest/download/install.sh | sh
#   sh install.sh                     from a checkout: installs that checkout
#   sh install.sh --help              options, variables, exit codes
#
# Everything lies in functions and the last line calls one of them, so a download that was cut runs nothing.
# POSIX sh: dash, bash, busybox and zsh run it. Never sudo, never a shell profile, never an unchecked file.
set -eu

# Written by scripts/stamp_release.py into the install.sh of a release; empty in a checkout.
RELEASE_VERSION=""
RELEASE_SHA256=""

# uv, as the wheel its authors publish on the package index.
UV_VERSION="0.13.9"
UV_WHEEL_X86_64="uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
UV_WHEEL_SHA256_X86_64="d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19"
UV_WHEEL_AARCH64="uv-0.13.9-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl"
UV_WHEEL_SHA256_AARCH64="5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe"

# uv, as its GitHub release archive: the newest release whose sha256 was found published in places that do not copy
# each other: gwk/pithy ops/versions.sh (015652f27e26) and the Homebrew-style formula uv.rb of 0.13.0 (the template
# of sixiang-world/tribucket Formula/uv.rb), both architectures equal in both and in three further pin lists.
UV_ARCHIVE_VERSION="0.13.0"
UV_ARCHIVE_SHA256_X86_64="1468ebd5a5541121837c5a2817b9972ba6090fa6caa3d142620850a47fb75154"
UV_ARCHIVE_SHA256_AARCH64="3ccfb6af6e242433eb552f7d9676abd5412c6595c497e990d9c8cb7b5bd4d2c3"

# What it costs, for --dry-run and the check of free space.
DOWNLOAD_MB=40
DISK_MB=150

# >>> runtime requirements: hashes of what verl-env depends on, written by scripts/stamp_release.py
release_requirements() {
    cat <<'END_OF_REQUIREMENTS'
END_OF_REQUIREMENTS
}
# <<< runtime requirements

usage() {
    cat <<'END_OF_USAGE'
Installs verl-env, then runs `verl-env install`. Arguments it does not know are passed on to that.

usage: sh install.sh [options] [-- arguments of verl-env install]
       curl -fsSL URL/install.sh | sh -s -- [options]

options (each has a variable; 1/true/yes/on or 0/false/no/off):
  --no-run      install the tool only                     VERL_ENV_NO_RUN
  --dry-run     print the plan, touch nothing             VERL_ENV_DRY_RUN
  --uninstall   remove what this script made              VERL_ENV_UNINSTALL
  --purge       with --uninstall: environments as well    VERL_ENV_PURGE
  --help        this text (`-- --help` for verl-env install's)

variables:
  VERL_ENV_HOME          moves everything, launcher included (default: XDG_DATA_HOME/verl-env, or
                         ~/.local/share/verl-env; this script's own files lie in its folder `self`)
  VERL_ENV_BIN_DIR       folder of the launcher (default: VERL_ENV_HOME/bin if that is set, else XDG_BIN_HOME,
                         else ~/.local/bin)
  VERL_ENV_BASE_URL      folder, http(s) or file://, that holds the release's wheel
  VERL_ENV_UV_BASE_URL   folder that holds uv's release archive, or the folders of its versions
  VERL_ENV_LOCK_TIMEOUT  seconds to wait for another installation (default: 1800)
  HTTP_PROXY, HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE, PIP_CERT, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE and the index
  settings of pip and uv (variables and files) are honoured.

exit codes:
  0 done   2 bad option, variable or folder   3 not a machine verl-env covers   6 installation failed
  11 not enough space   130 interrupted   others: as `verl-env install` returned them
END_OF_USAGE
}

# ---- saying things -------------------------------------------------------------------------------------------------

# Credentials and queries of URLs never reach a screen or a log.
mask() {
    printf '%s\n' "$1" | sed -e 's#://[^/[:space:]]*@#://***@#g' -e 's#\(://[^[:space:]?]*\)?[^[:space:]]*#\1?***#g'
}

say() {
    mask "verl-env: $1" >&2
}

# fail CODE MESSAGE HINT [EVIDENCE]
fail() {
    say "$2"
    if [ -n "${4:-}" ]; then
        mask "$4" | sed -e 's/^/  | /' >&2
    fi
    mask "hint: $3" >&2
    exit "$1"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# A switch's variable: true or false, and nothing else.
switch() {
    case "$2" in
        1 | true | yes | on) echo 1 ;;
        "" | 0 | false | no | off) echo "" ;;
        *) fail 2 "$1=$2 is neither true nor false" "set $1=1, or unset it" ;;
    esac
}

# The last lines of the log, for an error's evidence.
log_tail() {
    if [ -s "$WORK/log" ]; then
        grep -v '^[[:space:]]*$' "$WORK/log" | tail -n "${1:-8}"
    fi
}

# ---- what this machine is ------------------------------------------------------------------------------------------

# VERL_ENV_TEST_ROOT stands before /dev, /proc, /sys, /opt, /lib and /usr, so that tests can describe a machine.
any_path() {
    for place in "$@"; do
        if [ -e "$place" ]; then
            return 0
        fi
    done
    return 1
}

pci_vendor() {
    grep -qs "^$1" "$ROOT"/sys/bus/pci/devices/*/vendor
}

nvidia_seen() {
    any_path "$ROOT"/dev/nvidiactl "$ROOT"/dev/nvidia[0-9]* "$ROOT"/proc/driver/nvidia/version "$ROOT"/dev/dxg \
        "$ROOT"/dev/nvhost-gpu || pci_vendor 0x10de
}

check_platform() {
    system=$(uname -s)
    if [ "$system" != Linux ]; then
        fail 3 "verl-env runs on Linux; this is $system" "run it on the GPU node itself"
    fi
    MACHINE=$(uname -m)
    case "$MACHINE" in
        x86_64 | amd64) MACHINE=x86_64 ;;
        aarch64 | arm64) MACHINE=aarch64 ;;
        *) fail 3 "verl-env covers x86_64 and aarch64; this machine is $MACHINE" "run it on a node of one of these" ;;
    esac
    if any_path "$ROOT"/lib/ld-musl-*.so.1 &&
        { grep -qs '^ID=alpine' "$ROOT/etc/os-release" ||
            ! any_path "$ROOT"/lib64/ld-linux-x86-64.so.2 "$ROOT"/lib/ld-linux-*.so.*; }; then
        fail 3 "this system's C library is musl (Alpine?); the CUDA wheels of torch and vLLM need glibc" \
            "use a glibc system or image, such as Debian or Ubuntu"
    fi
}

# Other vendors' accelerators, unless the arguments describe another node or ask for CPU work.
check_accelerator() {
    for argument in "$@"; do
        case "$argument" in
            --cpu | --driver | --driver=* | --node | --node=* | --gpu | --gpu=*) return 0 ;;
        esac
    done
    if [ -n "${VERL_ENV_CPU:-}${VERL_ENV_DRIVER:-}${VERL_ENV_NODE:-}${VERL_ENV_GPU:-}" ] || nvidia_seen; then
        return 0
    fi
    other=""
    if any_path "$ROOT"/dev/davinci[0-9]* "$ROOT"/dev/davinci_manager "$ROOT"/dev/hisi_hdc; then
        other="a Huawei Ascend NPU"
    elif any_path "$ROOT"/dev/hl[0-9]* "$ROOT"/sys/module/habanalabs || pci_vendor 0x1da3; then
        other="an Intel Gaudi (Habana)"
    elif any_path "$ROOT"/dev/kfd "$ROOT"/opt/rocm "$ROOT"/opt/rocm-*; then
        other="an AMD GPU (ROCm)"
    fi
    if [ -n "$other" ]; then
        fail 3 "this machine has $other and no NVIDIA GPU; verl-env covers NVIDIA GPUs only" \
            "for a GPU node elsewhere add --driver VERSION --gpu NAME, for CPU work --cpu; else see verl's own guide"
    fi
}

# ---- folders -------------------------------------------------------------------------------------------------------

absolute() {
    case "$1" in
        [~]) printf '%s\n' "${HOME:-}" ;;
        [~]/*) printf '%s/%s\n' "${HOME:-}" "${1#?/}" ;;
        /*) printf '%s\n' "${1%/}" ;;
        *) printf '%s/%s\n' "$PWD" "${1%/}" ;;
    esac
}

choose_folders() {
    if [ -z "${VERL_ENV_HOME:-}" ]; then
        case "${HOME:-}" in
            /*) ;;
            "") fail 2 "HOME is not set, so there is no place to install to" "set HOME, or VERL_ENV_HOME=/some/folder" ;;
            *) fail 2 "HOME=$HOME is not an absolute path" "set HOME, or VERL_ENV_HOME=/some/folder" ;;
        esac
    fi
    if [ -n "${VERL_ENV_HOME:-}" ]; then
        DATA=$(absolute "$VERL_ENV_HOME")
        BIN="$DATA/bin"
    else
        DATA=$(absolute "${XDG_DATA_HOME:-$HOME/.local/share}")/verl-env
        BIN=$(absolute "${XDG_BIN_HOME:-$HOME/.local/bin}")
    fi
    if [ -n "${VERL_ENV_BIN_DIR:-}" ]; then
        BIN=$(absolute "$VERL_ENV_BIN_DIR")
    fi
    SELF="$DATA/self"
    LAUNCHER="$BIN/verl-env"
}

# Makes a folder and its parents, and keeps the names of those that were not there.
make_folder() {
    if [ -d "$1" ]; then
        return 0
    fi
    make_folder "$(dirname "$1")" || return 1
    if mkdir "$1" 2>/dev/null; then
        MADE="$MADE$1
"
    elif [ ! -d "$1" ]; then
        return 1
    fi
}

# Removes folders, last first, where they are empty. Reads their names from stdin.
remove_empty() {
    folders=""
    while IFS= read -r folder; do
        folders="$folder
$folders"
    done
    printf '%s' "$folders" | while IFS= read -r folder; do
        rmdir "$folder" 2>/dev/null || :
    done
}

# The nearest parent that exists.
nearest() {
    near=$1
    while [ ! -e "$near" ]; do
        near=$(dirname "$near")
    done
    printf '%s\n' "$near"
}

free_mb() {
    df -Pk "$(nearest "$1")" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }'
}

# Can a program in this folder be started?
can_execute() {
    probe="$1/verl-env-probe.$$"
    mkdir "$probe" 2>/dev/null || return 1
    started=1
    if ! { printf '#!/bin/sh\nexit 0\n' >"$probe/try" && chmod +x "$probe/try" && "$probe/try"; } 2>/dev/null; then
        started=""
    fi
    rm -rf "$probe"
    [ -n "$started" ]
}

check_writable() {
    for folder in "$DATA" "$BIN"; do
        near=$(nearest "$folder")
        if [ ! -d "$near" ]; then
            fail 2 "$folder cannot be made: $near is not a folder" "set VERL_ENV_HOME=/some/folder"
        fi
        if [ ! -w "$near" ] || [ ! -x "$near" ]; then
            fail 2 "$folder cannot be written (read-only, or not yours: $near)" \
                "set VERL_ENV_HOME to a folder that can, such as a scratch disk's"
        fi
    done
    temporary=${TMPDIR:-/tmp}
    if [ ! -d "$temporary" ] || [ ! -w "$temporary" ]; then
        fail 2 "the folder for temporary files, $temporary, is not there or cannot be written" \
            "set TMPDIR to a folder that can"
    fi
}

check_executable() {
    if ! can_execute "${TMPDIR:-/tmp}"; then
        fail 2 "nothing can be started from ${TMPDIR:-/tmp}, the folder for temporary files (mounted noexec, or full?)" \
            "set TMPDIR to a folder that allows it, such as TMPDIR=$DATA/tmp (make it first)"
    fi
    if ! can_execute "$WORK"; then
        fail 2 "nothing can be started from $DATA (mounted noexec, or full?)" \
            "set VERL_ENV_HOME to a folder that allows it"
    fi
}

check_space() {
    free=$(free_mb "$DATA")
    if [ -n "$free" ] && [ "$free" -lt "$DISK_MB" ]; then
        fail 11 "$DATA has $free MB free; verl-env itself needs about $DISK_MB MB" \
            "free some space, or set VERL_ENV_HOME to a folder with room"
    fi
}

# A launcher by our name that this script did not make is left alone.
check_launcher() {
    if [ -n "$(launched)" ] || { [ ! -e "$LAUNCHER" ] && [ ! -L "$LAUNCHER" ]; }; then
        return 0
    fi
    fail 2 "$LAUNCHER is there already, and this script did not make it" \
        "move it away, or set VERL_ENV_BIN_DIR to another folder"
}

# ---- one at a time, nothing left behind ----------------------------------------------------------------------------

# Names a process beyond doubt: host, pid namespace, pid, and when it started.
process_name() {
    printf '%s %s %s %s\n' "$(uname -n)" "$(readlink /proc/self/ns/pid 2>/dev/null || echo -)" "$1" \
        "$(sed -e 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20)"
}

holder_is_dead() {
    # shellcheck disable=SC2086 # the four words of process_name
    set -- $1
    [ $# -ge 3 ] && [ "$1 $2" = "$(process_name $$ | cut -d ' ' -f 1,2)" ] && [ "$(process_name "$3")" != "$*" ]
}

acquire_lock() {
    waited=0
    nameless=0
    limit=${VERL_ENV_LOCK_TIMEOUT:-1800}
    while ! mkdir "$SELF/lock" 2>/dev/null; do
        if [ ! -d "$SELF/lock" ]; then
            make_folder "$SELF" || fail 2 "$SELF cannot be made" "set VERL_ENV_HOME to a folder that can be written"
            waited=$((waited + 1))
            [ "$waited" -lt "$limit" ] || fail 6 "no lock could be made in $SELF" "look at its permissions"
            continue
        fi
        holder=$(cat "$SELF/lock/holder" 2>/dev/null) || holder=""
        if [ -z "$holder" ]; then
            nameless=$((nameless + 1))
        fi
        if [ "$nameless" -gt 10 ] || { [ -n "$holder" ] && holder_is_dead "$holder"; }; then
            # Two may see the same dead holder: who renames it away looks again at what was taken.
            if mv "$SELF/lock" "$SELF/tmp.stale.$$" 2>/dev/null; then
                if [ "$(cat "$SELF/tmp.stale.$$/holder" 2>/dev/null)" = "$holder" ]; then
                    rm -rf "$SELF/tmp.stale.$$"
                else
                    mv "$SELF/tmp.stale.$$" "$SELF/lock" 2>/dev/null || :
                fi
            fi
            nameless=0
            continue
        fi
        if [ "$waited" -eq 0 ]; then
            say "waiting for another installation ($(printf '%s\n' "$holder" | cut -d ' ' -f 1,3))"
        fi
        if [ "$waited" -ge "$limit" ]; then
            fail 6 "another installation has held $SELF/lock for $limit seconds" \
                "if no other installation runs, remove that folder"
        fi
        sleep 1
        waited=$((waited + 1))
    done
    LOCKED=1
    process_name $$ >"$SELF/lock/holder"
}

# Runs however the script ends; afterwards only what is complete is there.
clean_up() {
    if [ -n "$LOCKED" ]; then
        if [ -n "$UNFINISHED" ]; then
            rm -rf "$UNFINISHED"
        fi
        rm -rf "$WORK"
        rmdir "$SELF/tool" "$SELF/uv" 2>/dev/null || :
        if [ -n "$MADE" ] && { [ -d "$SELF/tool" ] || [ -d "$SELF/uv" ]; }; then
            printf '%s' "$MADE" >>"$SELF/made"
        fi
        rm -rf "$SELF/lock"
        LOCKED=""
    fi
    printf '%s' "$MADE" | remove_empty
    MADE=""
}

begin() {
    make_folder "$SELF" || fail 2 "$SELF cannot be made" "set VERL_ENV_HOME to a folder that can be written"
    acquire_lock
    # With the lock held, whatever is temporary is a dead run's.
    rm -rf "$SELF"/tmp.*
    WORK="$SELF/tmp.$$"
    mkdir "$WORK" || fail 6 "$WORK cannot be made" "look at the permissions of $SELF"
}

# ---- checked downloads ---------------------------------------------------------------------------------------------

choose_hasher() {
    for HASHER in sha256sum shasum openssl python3; do
        if have "$HASHER"; then
            return 0
        fi
    done
    fail 6 "no sha256sum, shasum, openssl or python3 is here, so no download can be checked; nothing was installed" \
        "install one of them"
}

# The sha256 of stdin.
sha256() {
    case "$HASHER" in
        sha256sum) sha256sum ;;
        shasum) shasum -a 256 ;;
        openssl) openssl dgst -sha256 -r ;;
        python3) python3 -I -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())' ;;
    esac | cut -c 1-64
}

# verify FILE SHA256: true only if the file is there and is that one.
verify() {
    if [ ! -f "$1" ] || [ ${#2} -ne 64 ]; then
        echo "nothing to check, or nothing to check it against: $(basename "$1")" >>"$WORK/log"
        return 1
    fi
    found=$(sha256 <"$1")
    if [ "$found" != "$2" ]; then
        printf 'sha256 of %s is\n  %s, not\n  %s\n' "$(basename "$1")" "$found" "$2" >>"$WORK/log"
        return 1
    fi
}

# download URL FILE. The URL goes to curl through stdin: a process list shows no credentials.
download() {
    mask "download $1" >>"$WORK/log"
    rm -f "$2"
    if have curl; then
        printf 'url = "%s"\n' "$1" | (
            use_network
            curl -fsSL --retry 2 --connect-timeout 20 -o "$2" -K -
        ) >>"$WORK/log" 2>&1
    elif have wget; then
        (
            use_network
            if [ -n "$CERTIFICATES" ] && wget --help 2>&1 | grep -q -e --ca-certificate; then
                wget -q --ca-certificate="$CERTIFICATES" -O "$2" "$1"
            else
                wget -q -O "$2" "$1"
            fi
        ) >>"$WORK/log" 2>&1 </dev/null
    elif have python3; then
        (
            use_network
            URL=$1 python3 -I -c 'import os, shutil, sys, urllib.request
with urllib.request.urlopen(os.environ["URL"], timeout=60) as answer, open(sys.argv[1], "wb") as file:
    shutil.copyfileobj(answer, file)' "$2"
        ) >>"$WORK/log" 2>&1 </dev/null
    else
        echo "no curl, wget or python3 to download with" >>"$WORK/log"
        return 1
    fi
}

# ---- settings of pip and uv ----------------------------------------------------------------------------------------

# A Python with pip: as a module, or as the wheel that ensurepip or the distribution keeps.
find_pip() {
    if [ -n "$PIP_SEARCHED" ]; then
        [ -n "$PIP_PYTHON" ]
        return
    fi
    PIP_SEARCHED=1
    for PIP_PYTHON in python3 python "$ROOT/usr/bin/python3" "${CONDA_PREFIX:-/nonexistent}/bin/python" \
        "$ROOT/opt/conda/bin/python"; do
        if have "$PIP_PYTHON" && quiet_python "$PIP_PYTHON" -m pip --version; then
            return 0
        fi
    done
    for PIP_PYTHON in python3 "$ROOT/usr/bin/python3"; do
        if have "$PIP_PYTHON"; then
            for PIP_WHEEL in $("$PIP_PYTHON" -I -B -c 'import glob, importlib.util, os
spec = importlib.util.find_spec("ensurepip")
for folder in [os.path.join(os.path.dirname(spec.origin), "_bundled")] * bool(spec) + ["/usr/share/python-wheels"]:
    print(*glob.glob(os.path.join(glob.escape(folder), "pip-*.whl")))' 2>/dev/null); do
                if quiet_python "$PIP_PYTHON" "$PIP_WHEEL/pip" --version; then
                    return 0
                fi
            done
        fi
    done
    PIP_PYTHON=""
    return 1
}

# Away from the working folder: a stray zipfile.py there would be imported.
quiet_python() (
    cd /
    unset PYTHONPATH PYTHONHOME
    PYTHONDONTWRITEBYTECODE=1 "$@" >/dev/null 2>&1 </dev/null
)

pip() {
    unset PYTHONPATH PYTHONHOME
    export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_REQUIRE_VIRTUALENV=0
    if [ -n "$PIP_WHEEL" ]; then
        "$PIP_PYTHON" "$PIP_WHEEL/pip" "$@"
    else
        "$PIP_PYTHON" -m pip "$@"
    fi
}

# pip_setting NAME: what pip's configuration files say, words apart by spaces.
pip_setting() {
    for section in install global; do
        value=$(printf '%s\n' "$PIP_CONFIG" | sed -n -e "s/^$section\.$1=.\(.*\).\$/\1/p" | sed -e 's/\\n/ /g')
        if [ -n "$value" ]; then
            printf '%s\n' "$value"
            return 0
        fi
    done
}

# Of some words, those that are URLs or local folders that exist: uv stops at one that does not, pip goes on.
reachable() {
    for word in $1; do
        case "$word" in
            [~]/*) word="${HOME:-}/${word#?/}" ;;
        esac
        case "$word" in
            file://*) [ ! -e "${word#file://}" ] || printf '%s\n' "$word" ;;
            *://*) printf '%s\n' "$word" ;;
            *) [ ! -e "$word" ] || printf '%s\n' "$word" ;;
        esac
    done
}

joined() {
    tr '\n' "$1" | sed -e "s/$1\$//"
}

# Puts what pip is told into uv's terms, except where uv is told something itself.
read_settings() {
    PIP_CONFIG=""
    if find_pip; then
        PIP_CONFIG=$(cd / && pip config list 2>/dev/null </dev/null) || PIP_CONFIG=""
    fi
    uv_files="${UV_CONFIG_FILE:-} ${XDG_CONFIG_HOME:-${HOME:-}/.config}/uv/uv.toml /etc/uv/uv.toml"
    # shellcheck disable=SC2086 # several files
    if [ -z "${UV_NO_CONFIG:-}" ] && grep -qsE '^[[:space:]]*(\[\[index|index|extra-index|default-index|find-links|no-index)' $uv_files; then
        PIP_INDEXES=""
    else
        PIP_INDEXES=1
    fi
    DEFAULT_INDEX=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-}}
    EXTRA_INDEXES=${UV_INDEX:-${UV_EXTRA_INDEX_URL:-}}
    FIND_LINKS=${UV_FIND_LINKS:-}
    NO_INDEX=${UV_NO_INDEX:-}
    INSECURE_HOSTS=${UV_INSECURE_HOST:-}
    if [ -n "$PIP_INDEXES" ]; then
        [ -n "$DEFAULT_INDEX" ] || DEFAULT_INDEX=$(reachable "${PIP_INDEX_URL:-$(pip_setting index-url)}")
        [ -n "$EXTRA_INDEXES" ] ||
            EXTRA_INDEXES=$(reachable "${PIP_EXTRA_INDEX_URL:-$(pip_setting extra-index-url)}" | joined ' ')
        [ -n "$FIND_LINKS" ] || FIND_LINKS=$(reachable "${PIP_FIND_LINKS:-$(pip_setting find-links)}" | joined ,)
        [ -n "$INSECURE_HOSTS" ] || INSECURE_HOSTS=${PIP_TRUSTED_HOST:-$(pip_setting trusted-host)}
        if [ -z "$NO_INDEX" ]; then
            case "${PIP_NO_INDEX:-$(pip_setting no-index)}" in
                1 | true | True | yes | on) NO_INDEX=1 ;;
            esac
        fi
    fi
    CERTIFICATES=""
    for file in "${SSL_CERT_FILE:-}" "${PIP_CERT:-}" "${REQUESTS_CA_BUNDLE:-}" "${CURL_CA_BUNDLE:-}" "$(pip_setting cert)"; do
        if [ -f "$file" ]; then
            CERTIFICATES=$file
            break
        fi
    done
}

# One bundle and the same proxies for everything that is started; each keeps a bundle it was given itself.
use_network() {
    proxy=${PIP_PROXY:-$(pip_setting proxy)}
    if [ -n "$proxy" ] && [ -z "${HTTPS_PROXY:-}${https_proxy:-}${HTTP_PROXY:-}${http_proxy:-}" ]; then
        export HTTPS_PROXY="$proxy" HTTP_PROXY="$proxy"
    fi
    # wget reads the small names only, curl some of the large ones, Python and uv all.
    if [ -n "${HTTP_PROXY:-}" ]; then
        export http_proxy="${http_proxy:-$HTTP_PROXY}"
    fi
    if [ -n "${HTTPS_PROXY:-}" ]; then
        export https_proxy="${https_proxy:-$HTTPS_PROXY}"
    fi
    if [ -n "${NO_PROXY:-}" ]; then
        export no_proxy="${no_proxy:-$NO_PROXY}"
    fi
    if [ -n "$CERTIFICATES" ]; then
        export SSL_CERT_FILE="$CERTIFICATES" CURL_CA_BUNDLE="${CURL_CA_BUNDLE:-$CERTIFICATES}"
        if [ -z "${REQUESTS_CA_BUNDLE:-}$(pip_setting cert)" ]; then
            export PIP_CERT="${PIP_CERT:-$CERTIFICATES}"
        fi
    fi
}

# The environment of every uv call: pip's settings translated, and of uv's those that say how to reach an index or
# where to keep things; none that would bend the result.
use_uv_settings() {
    use_network
    for name in $(env | sed -n -e 's/^\(UV_[A-Z0-9_]*\)=.*/\1/p'); do
        case "$name" in
            UV_DEFAULT_INDEX | UV_INDEX* | UV_EXTRA_INDEX_URL | UV_FIND_LINKS | UV_NO_INDEX | UV_INSECURE_HOST) ;;
            UV_KEYRING_PROVIDER | UV_CREDENTIALS_DIR | UV_HTTP_* | UV_REQUEST_TIMEOUT | UV_CONCURRENT_*) ;;
            UV_NATIVE_TLS | UV_SYSTEM_CERTS | UV_CACHE_DIR | UV_LINK_MODE | UV_OFFLINE | UV_CONFIG_FILE) ;;
            UV_NO_CONFIG | UV_PYTHON_INSTALL_* | UV_PYTHON_DOWNLOADS*) ;;
            *) unset "$name" ;;
        esac
    done
    unset PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX
    export UV_PYTHON_PREFERENCE=managed
    export UV_NO_PROGRESS=1 NO_COLOR=1
    if [ ! -d "${XDG_DATA_HOME:-${HOME:-}/.local/share}/uv/credentials" ]; then
        # uv makes the folder just to look into it.
        export UV_CREDENTIALS_DIR="${UV_CREDENTIALS_DIR:-$WORK/credentials}"
    fi
    if any_path /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem \
        /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/ssl/ca-bundle.pem; then
        # Without a system store uv's own certificates are the better choice.
        export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"
    fi
    export UV_PYTHON_INSTALL_DIR="${UV_PYTHON_INSTALL_DIR:-$SELF/python}"
    if [ -z "${UV_CACHE_DIR:-}" ] && [ -n "${VERL_ENV_HOME:-}" ]; then
        export UV_CACHE_DIR="$DATA/cache/uv"
    fi
    if [ -n "$DEFAULT_INDEX" ] && [ -z "${UV_INDEX_URL:-}" ]; then
        export UV_DEFAULT_INDEX="$DEFAULT_INDEX"
    fi
    if [ -n "$EXTRA_INDEXES" ] && [ -z "${UV_EXTRA_INDEX_URL:-}" ]; then
        export UV_INDEX="$EXTRA_INDEXES"
    fi
    if [ -n "$FIND_LINKS" ]; then
        export UV_FIND_LINKS="$FIND_LINKS"
    fi
    if [ -n "$INSECURE_HOSTS" ]; then
        export UV_INSECURE_HOST="$INSECURE_HOSTS"
    fi
    if [ -n "$NO_INDEX" ]; then
        export UV_NO_INDEX=1
    fi
}

# ---- uv ------------------------------------------------------------------------------------------------------------

choose_uv_pins() {
    if [ "$MACHINE" = x86_64 ]; then
        UV_WHEEL=$UV_WHEEL_X86_64
        UV_WHEEL_SHA256=$UV_WHEEL_SHA256_X86_64
        UV_ARCHIVE_SHA256=$UV_ARCHIVE_SHA256_X86_64
    else
        UV_WHEEL=$UV_WHEEL_AARCH64
        UV_WHEEL_SHA256=$UV_WHEEL_SHA256_AARCH64
        UV_ARCHIVE_SHA256=$UV_ARCHIVE_SHA256_AARCH64
    fi
    UV_ARCHIVE="uv-$MACHINE-unknown-linux-gnu.tar.gz"
}

# A uv of ours at a pinned version, unchanged since it was unpacked.
own_uv() {
    for version in "$UV_VERSION" "$UV_ARCHIVE_VERSION"; do
        UV="$SELF/uv/$version/uv"
        if [ -x "$UV" ] && [ "$(sha256 <"$UV")" = "$(cat "$SELF/uv/$version/sha256" 2>/dev/null)" ]; then
            return 0
        fi
    done
    return 1
}

wheel_with_pip() {
    find_pip || return 1
    METHOD="pip"
    mkdir -p "$WORK/pip"
    echo "uv==$UV_VERSION --hash=sha256:$UV_WHEEL_SHA256" >"$WORK/uv.txt"
    (
        use_network
        # A constraints file has no hashes, and pip would ask for them.
        export PIP_CONSTRAINT=/dev/null
        cd "$WORK/pip" || exit 1
        pip download -q --no-deps --only-binary :all: --require-hashes --dest . -r ../uv.txt
    ) >>"$WORK/log" 2>&1 </dev/null || return 1
    mv "$WORK"/pip/uv-*.whl "$WORK/$UV_WHEEL"
}

# From simple indexes and folders of wheels, where Python has no pip.
wheel_with_index() {
    have python3 || return 1
    if [ -z "$DEFAULT_INDEX$EXTRA_INDEXES$FIND_LINKS" ]; then
        return 1
    fi
    METHOD="the configured index"
    (
        use_network
        INDEXES="$DEFAULT_INDEX $EXTRA_INDEXES"
        if [ -n "$NO_INDEX" ]; then
            INDEXES=""
        fi
        export INDEXES FIND_LINKS
        python3 -I -B - "$UV_WHEEL" "$WORK/$UV_WHEEL" <<'END_OF_PYTHON'
"""Fetch one file of `uv` from simple indexes and folders of wheels, with nothing but the standard library."""

import base64
import html.parser
import os
import re
import shutil
import sys
import urllib.parse
import urllib.request

name, target = sys.argv[1:]


def opened(url):
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    host = "[%s]" % host if ":" in host else host
    bare = parts._replace(netloc=host + (":%d" % parts.port if parts.port else ""), fragment="")
    request = urllib.request.Request(urllib.parse.urlunsplit(bare), headers={"Accept": "text/html"})
    if parts.username:
        user = "%s:%s" % (urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or ""))
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    return urllib.request.urlopen(request, timeout=60)


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        href = dict(attributes).get("href")
        if tag == "a" and href:
            self.found.append(href)


def shown(url):
    return re.sub(r"://[^/]*@", "://***@", url)


pages = [index.rstrip("/") + "/uv/" for index in os.environ["INDEXES"].split()]
for place in re.split(r"[,\s]+", os.environ["FIND_LINKS"]):
    folder = urllib.parse.unquote(place[7:]) if place.startswith("file://") else place
    if place and os.path.isdir(folder):
        if os.path.isfile(os.path.join(folder, name)):
            shutil.copyfile(os.path.join(folder, name), target)
            sys.exit(0)
    elif place:
        pages.append(place)
for page in pages:
    try:
        if page.startswith("file://") and os.path.isdir(urllib.parse.unquote(page[7:])):
            page += "index.html"
        links = Links()
        with opened(page) as answer:
            base = answer.geturl()
            links.feed(answer.read().decode("utf-8", "replace"))
        for href in links.found:
            url = urllib.parse.urljoin(base, href)
            if urllib.parse.unquote(urllib.parse.urlsplit(url).path).rsplit("/", 1)[-1] == name:
                given, parts = urllib.parse.urlsplit(page), urllib.parse.urlsplit(url)
                if given.username and parts.hostname == given.hostname and not parts.username:
                    url = parts._replace(netloc=given.netloc).geturl()
                with opened(url) as answer, open(target, "wb") as file:
                    shutil.copyfileobj(answer, file)
                sys.exit(0)
        print("%s does not list %s" % (shown(page), name))
    except (OSError, ValueError) as error:
        print("%s: %s" % (shown(page), error))
sys.exit(1)
END_OF_PYTHON
    ) >>"$WORK/log" 2>&1
}

# A uv of any version that is here already, as a downloader that compares the hash itself.
wheel_with_uv() {
    have uv && have python3 || return 1
    METHOD="the uv on PATH"
    echo "uv==$UV_VERSION --hash=sha256:$UV_WHEEL_SHA256" >"$WORK/uv.txt"
    (
        use_uv_settings
        cd "$WORK" || exit 1
        uv pip install -q --no-deps --only-binary :all: --require-hashes --python "$(command -v python3)" \
            --target "$WORK/target" -r uv.txt
    ) >>"$WORK/log" 2>&1 </dev/null || return 1
    mv "$WORK/target/bin/uv" "$WORK/uv"
}

unpack_wheel() {
    if have unzip; then
        unzip -q -p "$WORK/$UV_WHEEL" "uv-$UV_VERSION.data/scripts/uv" >"$WORK/uv" 2>>"$WORK/log"
    else
        "${PIP_PYTHON:-python3}" -I -B -c 'import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as member, open(sys.argv[3], "wb") as file:
    shutil.copyfileobj(member, file)' "$WORK/$UV_WHEEL" "uv-$UV_VERSION.data/scripts/uv" "$WORK/uv" 2>>"$WORK/log"
    fi
}

archive_from_github() {
    METHOD="its release archive"
    if [ ${#UV_ARCHIVE_SHA256} -ne 64 ]; then
        echo "no sha256 is pinned for $UV_ARCHIVE, so it is not used" >>"$WORK/log"
        return 1
    fi
    base=${VERL_ENV_UV_BASE_URL:-https://github.com/astral-sh/uv/releases/download}
    base=${base%/}
    download "$base/$UV_ARCHIVE_VERSION/$UV_ARCHIVE" "$WORK/uv.tar.gz" ||
        { [ -n "${VERL_ENV_UV_BASE_URL:-}" ] && download "$base/$UV_ARCHIVE" "$WORK/uv.tar.gz"; } || return 1
    verify "$WORK/uv.tar.gz" "$UV_ARCHIVE_SHA256" || refuse_uv
    if have tar && have gzip; then
        tar -xzf "$WORK/uv.tar.gz" -C "$WORK" "${UV_ARCHIVE%.tar.gz}/uv" 2>>"$WORK/log" || return 1
    else
        python3 -I -B -c 'import sys, tarfile
with tarfile.open(sys.argv[1]) as archive:
    archive.extract(sys.argv[2], sys.argv[3])' "$WORK/uv.tar.gz" "${UV_ARCHIVE%.tar.gz}/uv" "$WORK" 2>>"$WORK/log" || return 1
    fi
    mv "$WORK/${UV_ARCHIVE%.tar.gz}/uv" "$WORK/uv"
}

refuse_uv() {
    fail 6 "uv from $METHOD is not the file whose sha256 this script knows; nothing was installed" \
        "look into the mirror or proxy that served it, then run this again" "$(log_tail 4)"
}

# keep_uv VERSION: what was checked moves, with its own sha256, to its final name by one rename.
keep_uv() {
    mkdir -p "$WORK/kept" "$SELF/uv"
    mv "$WORK/uv" "$WORK/kept/uv"
    chmod 755 "$WORK/kept/uv"
    sha256 <"$WORK/kept/uv" >"$WORK/kept/sha256"
    if ! "$WORK/kept/uv" --version >>"$WORK/log" 2>&1; then
        fail 6 "uv $1 does not start on this machine" "see what it says above the hint" "$(log_tail 3)"
    fi
    rm -rf "$SELF/uv/$1"
    mv "$WORK/kept" "$SELF/uv/$1"
    UV="$SELF/uv/$1/uv"
    say "uv $1 (from $METHOD, sha256 checked)"
}

bring_uv() {
    if own_uv; then
        return 0
    fi
    say "fetching uv $UV_VERSION"
    for way in wheel_with_pip wheel_with_index wheel_with_uv archive_from_github; do
        METHOD=""
        if "$way"; then
            case "$way" in
                wheel_with_uv) version=$UV_VERSION ;;
                archive_from_github) version=$UV_ARCHIVE_VERSION ;;
                *)
                    version=$UV_VERSION
                    verify "$WORK/$UV_WHEEL" "$UV_WHEEL_SHA256" || refuse_uv
                    unpack_wheel || continue
                    ;;
            esac
            keep_uv "$version"
            return 0
        fi
        if grep -qsiE 'hash(es)? (mismatch|do not match)|DO NOT MATCH THE HASHES' "$WORK/log"; then
            refuse_uv
        fi
    done
    fail 6 "uv $UV_VERSION could not be fetched: not with pip, not from a configured index, not from GitHub" \
        "point pip or uv at an index that can be reached (PIP_INDEX_URL, UV_DEFAULT_INDEX), or VERL_ENV_UV_BASE_URL at a folder with $UV_ARCHIVE of uv $UV_ARCHIVE_VERSION" \
        "$(log_tail 8)"
}

# ---- verl-env ------------------------------------------------------------------------------------------------------

# Is this script a file in a checkout of verl-env? Piped, $0 is the shell's name.
find_source() {
    CHECKOUT=""
    if [ -f "$SCRIPT" ] && grep -qs '^# verl-env installer' "$SCRIPT"; then
        script=$SCRIPT
        if [ -L "$script" ]; then
            script=$(readlink -f "$script")
        fi
        folder=$(cd "$(dirname "$script")" && pwd -P)
        if grep -qsE '^name *= *"verl-env"' "$folder/pyproject.toml"; then
            CHECKOUT=$folder
        fi
    fi
    if [ -n "$CHECKOUT" ]; then
        ID="checkout-$(checkout_digest | cut -c 1-20)"
    elif [ -n "$RELEASE_VERSION" ] && [ ${#RELEASE_SHA256} -eq 64 ]; then
        ID="$RELEASE_VERSION-$(printf '%s' "$RELEASE_SHA256" | cut -c 1-20)"
        WHEEL="verl_env-$RELEASE_VERSION-py3-none-any.whl"
        BASE_URL=${VERL_ENV_BASE_URL:-https://github.com/verl-env/verl-env/releases/download/v$RELEASE_VERSION}
        BASE_URL=${BASE_URL%/}
    else
        fail 6 "this install.sh is not a release's: it knows no wheel and no sha256 to check one with" \
            "pipe the install.sh of a release, or run \`sh install.sh\` inside a checkout"
    fi
    TOOL="$SELF/tool/$ID"
    TARGET="$TOOL/verl-env/bin/verl-env"
}

# One digest of all that goes into the wheel, and of this script.
checkout_digest() (
    cd "$CHECKOUT"
    for name in pyproject.toml README.md LICENSE install.sh requirements installer matrices; do
        if [ -e "$name" ]; then
            find "$name" -name __pycache__ -prune -o -type f ! -name '*.pyc' -print
        fi
    done | LC_ALL=C sort | tr '\n' '\0' | xargs -0 sh -c 'wc -c "$@"; cat "$@"' sh | sha256
)

is_complete() {
    [ -f "$TOOL/complete" ] && [ -x "$TARGET" ] && [ -x "$TOOL/verl-env/bin/python" ]
}

# The launcher starts the tool's Python isolated (-I): a cluster's PYTHONPATH and the user's own packages stay out.
launcher_text() {
    quoted=$(printf '%s' "$TOOL" | sed -e "s/'/'\\\\''/g")
    printf '%s\n' '#!/bin/sh' "# Made by verl-env's install.sh." \
        "exec '$quoted/verl-env/bin/python' -I '$quoted/verl-env/bin/verl-env' \"\$@\""
}

# The folder of the tool that the launcher starts; nothing if there is no launcher, or not one of ours.
launched() {
    sed -n -e "s#^exec '\(.*/self/tool/.*\)/verl-env/bin/python' -I .*#\1#p" "$LAUNCHER" 2>/dev/null | sed -e "s/'\\\\''/'/g"
}

is_linked() {
    [ -x "$LAUNCHER" ] && [ "$(launched)" = "$TOOL" ]
}

# Python 3.10 or newer for the tool itself; the environments bring their own.
find_python() {
    set -- python3.12 python3.13 python3.11 python3.10 python3.14 python3 python
    for folder in "$ROOT/usr/bin" "$ROOT/usr/local/bin" "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/*/bin \
        "$ROOT/opt/conda/bin"; do
        for name in python3.12 python3.13 python3.11 python3.10 python3.14 python3; do
            if [ -x "$folder/$name" ]; then
                set -- "$@" "$folder/$name"
            fi
        done
    done
    for candidate in "$@"; do
        if have "$candidate"; then
            PYTHON=$("$candidate" -I -B -c 'import sys
import ssl, venv
print(getattr(sys, "_base_executable", None) or sys.executable)
sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 15))' 2>/dev/null </dev/null) && return 0
        fi
    done
    PYTHON=""
    return 1
}

fetch_wheel() {
    if ! download "$BASE_URL/$WHEEL" "$WORK/$WHEEL"; then
        fail 6 "$WHEEL could not be fetched from $BASE_URL" \
            "see whether this node reaches it, or set VERL_ENV_BASE_URL to a folder that holds the wheel" "$(log_tail 3)"
    fi
    if ! verify "$WORK/$WHEEL" "$RELEASE_SHA256"; then
        fail 6 "$WHEEL from $BASE_URL is not the file this script knows; nothing was installed" \
            "look into the mirror or proxy that served it, or fetch install.sh of the release you want" "$(log_tail 3)"
    fi
    release_requirements >"$WORK/requirements.txt"
    HASHED=1
}

# The one thing to do about uv's failure.
index_hint() {
    if grep -qi 'hash mismatch' "$WORK/log"; then
        echo "an index served another file than the one that was locked: look into the mirror"
    elif [ -z "$PYTHON" ]; then
        echo "install Python 3.10 or newer, or set UV_PYTHON_INSTALL_MIRROR so that uv can fetch one"
    else
        echo "see whether the package index is reachable (PIP_INDEX_URL, UV_DEFAULT_INDEX, HTTPS_PROXY)"
    fi
}

build_wheel() {
    mkdir "$WORK/dist"
    (
        use_uv_settings
        cd "$WORK" || exit 1
        set -- --wheel --python "$PYTHON_REQUEST" --out-dir "$WORK/dist"
        if [ -f "$CHECKOUT/requirements/build.txt" ]; then
            set -- "$@" --build-constraints "$CHECKOUT/requirements/build.txt" --require-hashes
        fi
        "$UV" build "$@" "$CHECKOUT"
    ) >>"$WORK/log" 2>&1 </dev/null ||
        fail 6 "the checkout's wheel could not be built; what was there before still works" "$(index_hint)" "$(log_tail)"
    WHEEL=$(cd "$WORK/dist" && echo verl_env-*.whl)
    mv "$WORK/dist/$WHEEL" "$WORK/$WHEEL"
    HASHED=""
    if [ -f "$CHECKOUT/requirements/runtime.txt" ]; then
        HASHED=1
        cp "$CHECKOUT/requirements/runtime.txt" "$WORK/requirements.txt"
    else
        say "note: the checkout has no requirements/runtime.txt, so what verl-env depends on has no hashes to check"
    fi
}

# `uv tool install` does not compare the hashes of its constraints (seen with 0.13.9). So its environment is filled
# first, each file against its hash, and then adopted with no network: whatever is missing is an error.
install_wheel() {
    say "installing verl-env and what it depends on"
    mkdir -p "$SELF/tool"
    UNFINISHED=$TOOL
    rm -rf "$TOOL"
    mkdir "$TOOL"
    mv "$WORK/$WHEEL" "$TOOL/$WHEEL"
    # `|| exit` throughout: what stands left of `||`, as this subshell does, runs without set -e.
    (
        use_uv_settings
        export UV_TOOL_DIR="$TOOL" UV_TOOL_BIN_DIR="$TOOL/bin"
        cd "$TOOL" || exit 1
        if [ -z "$HASHED" ]; then
            "$UV" tool install --compile-bytecode --python "$PYTHON_REQUEST" "./$WHEEL"
            exit
        fi
        if [ -n "$EXTRA_INDEXES" ]; then
            # The hash decides which file it is, so any index may serve it.
            export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"
        fi
        if [ -f "$WORK/$UV_WHEEL" ]; then
            # verl-env depends on uv: the wheel that was just fetched is not fetched twice.
            export UV_FIND_LINKS="$WORK${FIND_LINKS:+,$FIND_LINKS}"
        fi
        echo "./$WHEEL --hash=sha256:$(sha256 <"$WHEEL")" >>"$WORK/requirements.txt" || exit 1
        "$UV" venv -q --python "$PYTHON_REQUEST" "$TOOL/verl-env" || exit 1
        "$UV" pip install --no-build --require-hashes --python "$TOOL/verl-env/bin/python" \
            -r "$WORK/requirements.txt" || exit 1
        unset UV_FIND_LINKS UV_INDEX UV_DEFAULT_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL
        UV_NO_CONFIG=1 "$UV" tool install --offline --no-index --compile-bytecode \
            --python "$TOOL/verl-env/bin/python" "./$WHEEL"
    ) >>"$WORK/log" 2>&1 </dev/null || {
        fail 6 "verl-env could not be installed; what was there before still works" "$(index_hint)" "$(log_tail 12)"
    }
    if ! "$TOOL/verl-env/bin/python" -I "$TARGET" --version >>"$WORK/log" 2>&1 </dev/null; then
        fail 6 "verl-env was installed and does not start; what was there before still works" \
            "report this, with what it says above the hint" "$(log_tail)"
    fi
    echo "$ID" >"$WORK/complete"
    mv "$WORK/complete" "$TOOL/complete"
    UNFINISHED=""
}

link_launcher() {
    make_folder "$BIN" || fail 2 "$BIN cannot be made" "set VERL_ENV_BIN_DIR to a folder that can be written"
    PREVIOUS=$(launched)
    if ! { launcher_text >"$BIN/.verl-env.$$" && chmod 755 "$BIN/.verl-env.$$" &&
        mv -f "$BIN/.verl-env.$$" "$LAUNCHER"; } 2>/dev/null; then
        rm -f "$BIN/.verl-env.$$"
        fail 2 "$LAUNCHER cannot be written" "set VERL_ENV_BIN_DIR to a folder that can be written"
    fi
}

in_use() {
    # The pattern comes through stdin, or grep would find itself.
    # shellcheck disable=SC2062 # the pattern is `-`
    printf '%s/\n' "$1" | grep -qs -F -f - /proc/[0-9]*/cmdline /proc/[0-9]*/maps
}

# Older tools go, except the one before and those that a process runs from.
remove_old() {
    for folder in "$SELF"/tool/*; do
        if [ "$folder" != "$TOOL" ] && [ "$folder" != "$PREVIOUS" ] && ! in_use "$folder"; then
            rm -rf "$folder"
        fi
    done
    for folder in "$SELF"/uv/*; do
        case "$folder" in
            */"$UV_VERSION" | */"$UV_ARCHIVE_VERSION") ;;
            *) rm -rf "$folder" ;;
        esac
    done
}

install_tool() {
    check_writable
    begin
    if ! is_complete; then
        check_space
        check_executable
        read_settings
        choose_uv_pins
        if [ -z "$CHECKOUT" ]; then
            fetch_wheel
        fi
        bring_uv
        if find_python; then
            PYTHON_REQUEST=$PYTHON
        else
            PYTHON_REQUEST=">=3.10,<3.15"
            say "no Python 3.10 or newer is here; uv fetches one"
        fi
        if [ -n "$CHECKOUT" ]; then
            build_wheel
        fi
        install_wheel
    fi
    link_launcher
    remove_old
    clean_up
    say "installed $LAUNCHER ($ID)"
    case ":$PATH:" in
        *":$BIN:"*) ;;
        *) say "note: $BIN is not on PATH; to call verl-env by its name: export PATH=\"$BIN:\$PATH\"" ;;
    esac
}

# Never returns: verl-env takes this process's place.
run_tool() {
    clean_up
    trap - EXIT INT TERM HUP
    unset VERL_ENV_NO_RUN VERL_ENV_UNINSTALL VERL_ENV_PURGE VERL_ENV_BASE_URL VERL_ENV_UV_BASE_URL VERL_ENV_BIN_DIR \
        VERL_ENV_LOCK_TIMEOUT VERL_ENV_TEST_ROOT
    if [ -z "$SCRIPT_IS_FILE" ] && [ ! -t 0 ]; then
        exec "$LAUNCHER" install "$@" </dev/null
    fi
    exec "$LAUNCHER" install "$@"
}

# ---- --dry-run and --uninstall -------------------------------------------------------------------------------------

plan_line() {
    mask "$(printf '  %-10s %s' "$1" "$2")"
}

print_plan() {
    read_settings
    choose_uv_pins
    echo "verl-env: the plan; nothing is touched"
    if nvidia_seen; then
        plan_line node "Linux $MACHINE, an NVIDIA device"
    else
        plan_line node "Linux $MACHINE, no NVIDIA device"
    fi
    if is_complete; then
        plan_line verl-env "$ID, installed already"
    else
        if own_uv; then
            plan_line uv "$UV"
        elif find_pip; then
            plan_line uv "$UV_VERSION, with pip of $PIP_PYTHON: $UV_WHEEL, sha256 $UV_WHEEL_SHA256"
        elif [ -n "$DEFAULT_INDEX$EXTRA_INDEXES$FIND_LINKS" ] && have python3; then
            plan_line uv "$UV_VERSION, from the configured index: $UV_WHEEL, sha256 $UV_WHEEL_SHA256"
        else
            plan_line uv "$UV_ARCHIVE_VERSION, ${VERL_ENV_UV_BASE_URL:-https://github.com/astral-sh/uv/releases/download}/$UV_ARCHIVE_VERSION/$UV_ARCHIVE, sha256 $UV_ARCHIVE_SHA256"
        fi
        if find_python; then
            plan_line python "$PYTHON"
        else
            plan_line python "3.10 or newer, fetched by uv"
        fi
        if [ -n "$CHECKOUT" ]; then
            plan_line verl-env "built from $CHECKOUT"
        else
            plan_line verl-env "$BASE_URL/$WHEEL, sha256 $RELEASE_SHA256"
        fi
        plan_line index "${DEFAULT_INDEX:-as uv is set up}${EXTRA_INDEXES:+ $EXTRA_INDEXES}${FIND_LINKS:+ $FIND_LINKS}"
        plan_line download "about $DOWNLOAD_MB MB; $DISK_MB MB on disk, $(free_mb "$DATA") MB free"
    fi
    plan_line data "$DATA"
    plan_line launcher "$LAUNCHER"
    if [ -z "$NO_RUN" ]; then
        plan_line "then" "verl-env install${*:+ $*}"
    fi
}

dry_run() {
    check_writable
    print_plan "$@"
    if is_complete && [ -z "$NO_RUN" ]; then
        trap - EXIT INT TERM HUP
        exec "$TOOL/verl-env/bin/python" -I "$TARGET" install --dry-run "$@" </dev/null
    fi
}

# What --purge takes besides: environments, each known by its lockfile or receipt, and their logs.
purge() {
    for folder in "$DATA"/environments/*; do
        if [ -d "$folder" ] && in_use "$folder"; then
            fail 6 "a process runs from $folder; nothing was removed" "end it, then run this again"
        fi
    done
    for folder in "$DATA"/environments/*; do
        if any_path "$folder"/pylock.*.toml "$folder"/verl-env-receipt.json; then
            rm -rf "$folder"
        fi
    done
    rm -f "$DATA"/environments/.*.lock
    rmdir "$DATA/environments" 2>/dev/null || :
    rm -rf "$DATA/logs"
    if [ -L "$DATA/current" ]; then
        rm -f "$DATA/current"
    fi
    if [ -n "${VERL_ENV_HOME:-}" ] && [ -f "$DATA/cache/uv/CACHEDIR.TAG" ]; then
        rm -rf "$DATA/cache/uv"
        rmdir "$DATA/cache" 2>/dev/null || :
    fi
}

uninstall() {
    ours=""
    case "$(launched)" in
        "$SELF"/tool/*) ours=$LAUNCHER ;;
    esac
    if [ -z "$ours" ] && [ ! -d "$SELF" ] && { [ -z "$PURGE" ] || [ ! -d "$DATA" ]; }; then
        say "nothing to remove: verl-env is not installed in $DATA"
        return 0
    fi
    if [ -n "$DRY_RUN" ]; then
        echo "verl-env: the plan; nothing is touched"
        if [ -n "$ours" ]; then
            plan_line remove "$ours"
        fi
        if [ -d "$SELF" ]; then
            plan_line remove "$SELF"
        fi
        if [ -n "$PURGE" ]; then
            plan_line remove "$DATA/environments, logs, current"
        fi
        return 0
    fi
    begin
    for folder in "$SELF"/tool/*; do
        if [ -d "$folder" ] && in_use "$folder"; then
            fail 6 "verl-env is running from $folder; nothing was removed" "end it, then run this again"
        fi
    done
    if [ -n "$PURGE" ]; then
        purge
    fi
    if [ -n "$ours" ]; then
        rm -f "$ours"
    fi
    made=$(cat "$SELF/made" 2>/dev/null) || made=""
    rm -rf "$SELF"
    LOCKED=""
    MADE=""
    printf '%s\n%s\n' "$made" "$DATA" | LC_ALL=C sort -u | remove_empty
    say "removed verl-env from $DATA${ours:+ and $ours}"
    if [ -d "$DATA" ] && [ -z "$PURGE" ]; then
        say "kept what else is in $DATA, environments among it; --uninstall --purge removes these too"
    elif [ -d "$DATA" ]; then
        say "what neither this script nor verl-env made is left in $DATA"
    fi
}

# ---- the whole -----------------------------------------------------------------------------------------------------

main() {
    if [ -n "${ZSH_VERSION:-}" ]; then
        emulate sh
    fi
    if [ "${1:-}" != whole ]; then
        echo "verl-env: this script was cut on its way; nothing was run" >&2
        exit 6
    fi
    shift
    ROOT=${VERL_ENV_TEST_ROOT:-}
    LOCKED="" UNFINISHED="" MADE="" WORK=/nonexistent PIP_SEARCHED="" PIP_PYTHON="" PIP_WHEEL="" PREVIOUS="" HASHED=""
    SCRIPT_IS_FILE=""
    if [ -f "$SCRIPT" ] && grep -qs '^# verl-env installer' "$SCRIPT"; then
        SCRIPT_IS_FILE=1
    fi
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    NO_RUN=$(switch VERL_ENV_NO_RUN "${VERL_ENV_NO_RUN:-}")
    DRY_RUN=$(switch VERL_ENV_DRY_RUN "${VERL_ENV_DRY_RUN:-}")
    UNINSTALL=$(switch VERL_ENV_UNINSTALL "${VERL_ENV_UNINSTALL:-}")
    PURGE=$(switch VERL_ENV_PURGE "${VERL_ENV_PURGE:-}")
    count=$#
    own=1
    while [ "$count" -gt 0 ]; do
        argument=$1
        shift
        count=$((count - 1))
        case "$own$argument" in
            1--help | 1-h)
                usage
                exit 0
                ;;
            1--no-run) NO_RUN=1 ;;
            1--dry-run) DRY_RUN=1 ;;
            1--uninstall) UNINSTALL=1 ;;
            1--purge) PURGE=1 ;;
            1--) own="" ;;
            *) set -- "$@" "$argument" ;;
        esac
    done
    if [ -n "$PURGE" ] && [ -z "$UNINSTALL" ]; then
        fail 2 "--purge goes with --uninstall only" "run it with --uninstall --purge"
    fi
    if [ -n "$UNINSTALL" ] && [ $# -gt 0 ]; then
        fail 2 "--uninstall takes no $1" "run it with --uninstall alone, or with --purge"
    fi
    choose_folders
    if [ -n "$UNINSTALL" ]; then
        uninstall
        exit 0
    fi
    check_platform
    check_accelerator "$@"
    choose_hasher
    find_source
    check_launcher
    if [ -n "$DRY_RUN" ]; then
        dry_run "$@"
        exit 0
    fi
    if ! is_complete || ! is_linked; then
        install_tool
    fi
    if [ -n "$NO_RUN" ]; then
        exit 0
    fi
    run_tool "$@"
}

SCRIPT=$0
# A line cut after `main` would drop the arguments; without this first one it runs nothing.
set -- whole "$@"
main "$@"
