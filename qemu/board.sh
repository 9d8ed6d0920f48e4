#!/bin/bash
# Boots a board: Debian's kernel for ARM in qemu-system-arm, two processors, with the stub, test
# programs and Debian's C library in an initramfs. Its state is lost at shutdown.
#
#   qemu/board.sh arm|arm64              boot with a shell on this terminal; Ctrl-A X: off
#   qemu/board.sh arm|arm64 --headless   for tests: runs until its standard input ends
#   qemu/board.sh arm|arm64 --build      only build the files that it boots from
#
# The first two print the board's ports on this machine's loopback interface:
#
#   gdb     its port 1234, for `unspool-stub 0.0.0.0:1234 PROG` on the board
#   shell   a shell executes the input of a connection, and answers on the same connection
#   put     unpacks a tar archive in the board's root directory
#   serial  the other end of the board's /dev/ttyS0 (a Unix socket)
#   monitor qemu's monitor (a Unix socket): `hostfwd_add net tcp:127.0.0.1:0-:PORT` forwards another
#           port
#
# All files are created under target/ (or CARGO_TARGET_DIR). The script first checks its
# requirements, and prints the command that installs missing packages.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
target=${CARGO_TARGET_DIR:-$root/target}
mode=${2:-}

case ${1:-} in
arm)
    debian=armhf flavour=armmp triple=armv7-unknown-linux-gnueabihf cross=arm-linux-gnueabihf
    loader=ld-linux-armhf.so.3
    # PCI, with the second serial port, below 4 GiB: this kernel supports no other addresses.
    machine=(qemu-system-arm -M virt,highmem=off -cpu cortex-a15)
    builds=(a32=-marm t32=-mthumb)
    ;;
arm64)
    debian=arm64 flavour=arm64 triple=aarch64-unknown-linux-gnu cross=aarch64-linux-gnu
    loader=ld-linux-aarch64.so.1
    machine=(qemu-system-aarch64 -M virt -cpu cortex-a72)
    builds=(a64=)
    ;;
*)
    sed -n '5,7s/^# *//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac

say() { [ "$mode" = --headless ] || echo "board.sh: $*" >&2; }

# Requirements of this machine, checked before anything is created.
missing=()
needs() { command -v "$1" >/dev/null || missing+=("$2"); }
needs "${machine[0]}" qemu-system-arm
needs cpio cpio
needs python3 python3
needs "$cross-gcc" "gcc-$cross"
[ -e "/usr/$cross/include/stdio.h" ] || missing+=("libc6-dev-$debian-cross")
as_root='sudo '
[ "$(id -u)" != 0 ] || as_root=
commands=()
if ! command -v dpkg >/dev/null || ! command -v apt-get >/dev/null; then
    echo "board.sh: no apt-get: the board's files are Debian packages, so this takes Debian or a relative of it" >&2
    exit 1
fi
known=$(dpkg --print-architecture && dpkg --print-foreign-architectures)
if ! grep -qx "$debian" <<<"$known"; then
    commands+=("${as_root}dpkg --add-architecture $debian" "${as_root}apt-get update")
fi
if [ ${#missing[@]} -gt 0 ]; then
    commands+=("${as_root}apt-get install -y --no-install-recommends ${missing[*]}")
fi
if [ ${#commands[@]} -gt 0 ]; then
    line=$(printf ' && %s' "${commands[@]}")
    printf 'board.sh: this machine lacks what the board needs. Run:\n    %s\n' "${line# && }" >&2
    exit 1
fi
if ! command -v cargo >/dev/null || ! command -v rustup >/dev/null; then
    echo "board.sh: no cargo or no rustup, which build the stub: install Rust from https://rustup.rs" >&2
    exit 1
fi

# The parts of the board.
mkdir -p "$target"
kernel_package=$(apt-cache depends "linux-image-$flavour:$debian" | sed -n 's/.*Depends: \(linux-image-[^:]*\).*/\1/p' | head -n 1)
: "${kernel_package:?apt has no linux-image-$flavour:$debian: run: sudo apt-get update}"
modules=(failover net_failover virtio_mmio virtio_net)
globs=()
for module in "${modules[@]}"; do
    globs+=(--only "./lib/modules/*/$module.ko")
done
boot=$("$here/packages.sh" --only './boot/vmlinuz-*' --only ./bin/busybox "${globs[@]}" \
    "$target/boot-$debian" "$debian" "$kernel_package" busybox-static)
sysroot=$("$here/sysroot.sh" "$target/sysroot-$debian" "$debian")
say "building the stub"
stub=$(CARGO_TARGET_DIR=$target "$root/stub/build" "$triple")

# The initramfs, rebuilt when one of its parts changes.
image=$target/board-$debian.cpio
programs=("$root"/tests/programs/{pool,nest,shortlived,detached,churn}.c)
if [ ! -e "$image" ] || [ -n "$(find "$stub" "$boot/.packages" "$sysroot/.packages" \
    "${programs[@]}" "$here" -newer "$image" -print -quit)" ]; then
    say "building the initramfs"
    work=$(mktemp -d "$target/board.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    tree=$work/tree
    mkdir -p "$tree"/{bin,sbin,lib/modules,usr/bin,usr/sbin,usr/lib,proc,sys,dev,tmp,root,opt,etc}
    cp "$boot/bin/busybox" "$tree/bin/"
    cp "$stub" "$tree/usr/bin/"
    find "$boot/lib/modules" -name '*.ko' -exec cp {} "$tree/lib/modules/" \;
    # The libraries without files that only this machine's gdb reads, and without unused programs.
    tar -C "$sysroot" -c --exclude=usr/lib/debug --exclude=usr/share --exclude=usr/include --exclude='*.a' --exclude=gconv --exclude=.packages . |
        tar -C "$tree" -x --keep-directory-symlink
    [ -e "$tree/lib/$loader" ] || ln -s "$cross/$loader" "$tree/lib/$loader"
    for build in "${builds[@]}"; do
        mkdir "$tree/opt/${build%%=*}"
        for program in "${programs[@]}"; do
            # shellcheck disable=SC2086 # the options may be empty
            "$cross-gcc" ${build#*=} -O2 -g -pthread -o "$tree/opt/${build%%=*}/$(basename "$program" .c)" "$program"
        done
    done
    cp "$here/init" "$tree/init"
    (cd "$tree" && find . -print0 | cpio --quiet --null -o -H newc -R 0:0) >"$work/image"
    mv "$work/image" "$image"
    rm -rf "$work"
    trap - EXIT
fi
[ "$mode" != --build ] || exit 0

# Booting.
work=$(mktemp -d "${TMPDIR:-/tmp}/unspool-board.XXXXXX")
pid=
input=
cleanup() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    [ -z "$input" ] || kill "$input" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
machine+=(
    -smp 2 -m 512 -no-reboot -display none
    -kernel "$boot"/boot/vmlinuz-*
    -initrd "$image"
    -append "console=ttyAMA0 quiet panic=-1 rdinit=/init"
    # Port 0 means any free port. The monitor reports which.
    -netdev "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:1234,hostfwd=tcp:127.0.0.1:0-:7000,hostfwd=tcp:127.0.0.1:0-:7001"
    -device virtio-net-device,netdev=net
    -chardev "socket,id=monitor,path=$work/monitor,server=on,wait=off" -mon monitor
    -chardev "socket,id=serial,path=$work/serial,server=on,wait=off" -device pci-serial,chardev=serial
    -nic none
)

ports() {
    python3 - "$work/monitor" <<'PYTHON'
import re, socket, sys, time
monitor = socket.socket(socket.AF_UNIX)
for attempt in range(100):
    try:
        monitor.connect(sys.argv[1])
        break
    except OSError:
        time.sleep(0.05)
else:
    sys.exit("board.sh: qemu does not start")
monitor.settimeout(10)
monitor.sendall(b"info usernet\n")
text = ""
names = {"1234": "gdb", "7000": "shell", "7001": "put"}
found = {}
while len(found) < len(names):
    heard = monitor.recv(65536)
    if not heard:
        sys.exit("board.sh: qemu has ended")
    text += heard.decode(errors="replace")
    for line in text.splitlines():
        words = line.split()
        if words and words[0].startswith("TCP[HOST_FORWARD]") and len(words) >= 6 and words[5] in names:
            found[names[words[5]]] = words[3]
for name in names.values():
    print(name, found[name])
PYTHON
    echo "serial $work/serial"
    echo "monitor $work/monitor"
}

# The machine stops with this script, however the script ends.
machine=(setpriv --pdeathsig KILL "${machine[@]}")

fallen() {
    echo "board.sh: the board $1; its console, then what qemu says:" >&2
    tail -n 40 "$work/console" "$work/errors" >&2 || true
    exit 1
}

if [ "$mode" = --headless ]; then
    "${machine[@]}" -serial "file:$work/console" </dev/null 2>"$work/errors" &
    pid=$!
    ports || fallen "does not start"
    echo "console $work/console"
    # Until the caller closes standard input or exits.
    exec 3<&0
    cat <&3 >/dev/null &
    input=$!
    wait -n "$pid" "$input" || true
    kill -0 "$pid" 2>/dev/null || fallen "has ended"
else
    (sleep 0.5; ports | sed 's/^/board.sh: /' >&2) &
    say "Ctrl-A X switches it off; on the board: unspool-stub 0.0.0.0:1234 /opt/${builds[0]%%=*}/pool"
    "${machine[@]}" -serial mon:stdio
fi
