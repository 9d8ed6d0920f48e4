#!/bin/bash
# Unpacks Debian's armhf packages that the tests need into one directory: what a board's root file
# system would hold, for `qemu-arm -L`, `unspool --sysroot` and gdb's `set sysroot`.
#
#   qemu/sysroot.sh [DIR]        DIR: target/sysroot-armhf unless given
#
# Needs apt with armhf as a foreign architecture (tests/run adds it), no root. Prints DIR.
# Done once: the list of packages and versions is kept in DIR/.packages.
set -euo pipefail

packages=(
    libc6 libgcc-s1 libstdc++6  # what the test programs link to
    libc6-dbg                   # so that gdb unwinds and names the C library's frames
    pigz zlib1g                 # a threaded program that is not ours
)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
directory=${1:-$here/../target/sysroot-armhf}

# Package lists are in flux while somebody updates them: what there is still serves.
keep() {
    if [ -e "$directory/.packages" ]; then
        (cd "$directory" && pwd)
        exit 0
    fi
}

if ! grep -qx armhf <(dpkg --print-foreign-architectures); then
    echo "sysroot.sh: apt does not know armhf: run: sudo dpkg --add-architecture armhf && sudo apt-get update" >&2
    exit 1
fi

if ! wanted=$(
    for package in "${packages[@]}"; do
        version=$(apt-cache policy "$package:armhf" | sed -n 's/^  Candidate: //p')
        if [ -z "$version" ] || [ "$version" = "(none)" ]; then
            echo "sysroot.sh: apt has no $package:armhf: run: sudo apt-get update" >&2
            exit 1
        fi
        echo "$package:armhf=$version"
    done
); then
    keep
    exit 1
fi

if [ "$(cat "$directory/.packages" 2>/dev/null)" != "$wanted" ]; then
    mkdir -p "$(dirname "$directory")"
    fresh=$(mktemp -d "$directory.XXXXXX")
    trap 'rm -rf "$fresh"' EXIT
    mkdir "$fresh/.debs"
    # shellcheck disable=SC2086 # one word per package
    (cd "$fresh/.debs" && apt-get -qq -o APT::Sandbox::User=root download $wanted >&2) || { keep; exit 1; }
    for deb in "$fresh"/.debs/*.deb; do
        dpkg-deb -x "$deb" "$fresh"
    done
    rm -rf "$fresh/.debs"
    chmod 755 "$fresh"
    echo "$wanted" >"$fresh/.packages"
    rm -rf "$directory"
    mv "$fresh" "$directory"
fi
(cd "$directory" && pwd)
