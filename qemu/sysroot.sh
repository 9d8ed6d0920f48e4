#!/bin/bash
# Collects the Debian libraries that the tests' ARM programs need in one directory, like a board's
# root file system. It serves `qemu-arm -L`, `unspool --sysroot` and gdb's `set sysroot`.
#
#   qemu/sysroot.sh [DIR [ARCH]]        defaults: target/sysroot-ARCH, armhf; ARCH: armhf, arm64
#
# Prints DIR. For its requirements see packages.sh.
set -euo pipefail

packages=(
    libc6 libgcc-s1 libstdc++6      # what the test programs link to
    musl musl-dev                   # another C library, and what programs with it are linked from
    libc6-dbg                       # so that gdb unwinds and names the C library's frames
    pigz zlib1g xz-utils liblzma5   # threaded programs that are not ours
    gdbserver                       # the board's second judge
)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
arch=${2:-armhf}
exec "$here/packages.sh" "${1:-$here/../target/sysroot-$arch}" "$arch" "${packages[@]}"
