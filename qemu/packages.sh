#!/bin/bash
# Downloads Debian packages of any architecture with apt and unpacks them into one directory.
#
#   qemu/packages.sh [--suite SUITE] [--only GLOB]... DIR ARCH PACKAGE...
#
# --suite: packages of another Debian release than the machine's own (`trixie`), from the same
#   mirror. The machine's apt configuration is not changed.
# --only: only these files; the globs are tar's (`./boot/vmlinuz-*`).
# Needs no root. Without --suite, apt must support ARCH (tests/run adds foreign architectures).
# Prints DIR.
# Works only once: DIR/.packages stores the list of packages and versions.
set -euo pipefail

only=() suite=
while [[ $1 = --* ]]; do
    case $1 in
        --only) only+=("$2") ;;
        --suite) suite=$2 ;;
        *) echo "packages.sh: $1?" >&2; exit 2 ;;
    esac
    shift 2
done
directory=$1 arch=$2
shift 2

known=$(dpkg --print-architecture && dpkg --print-foreign-architectures)
if [ -z "$suite" ] && ! grep -qx "$arch" <<<"$known"; then
    echo "packages.sh: apt does not know $arch: run: sudo dpkg --add-architecture $arch && sudo apt-get update" >&2
    exit 1
fi

apt=()
if [ -n "$suite" ]; then
    # Keep downloaded packages: a check for newer versions would download lists of 10 MB each time.
    asked="suite $suite $arch $*"
    if [ "$(head -n 1 "$directory/.packages" 2>/dev/null)" = "$asked" ]; then
        (cd "$directory" && pwd)
        exit
    fi
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
    if [ -z "$mirror" ]; then
        echo "packages.sh: apt has no mirror of Debian: run: sudo apt-get update" >&2
        exit 1
    fi
    mkdir -p "$(dirname "$directory")"
    lists=$(mktemp -d "$(cd "$(dirname "$directory")" && pwd)/lists.XXXXXX")
    trap 'rm -rf "$lists"' EXIT
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
    : >"$lists/status"
    echo "deb [arch=$arch signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$lists/sources.list"
    apt=(
        -o "APT::Architectures::=$(dpkg --print-architecture)" -o "APT::Architectures::=$arch"
        -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$lists/lists" -o "Dir::State::status=$lists/status" -o "Dir::Cache=$lists/cache"
        -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
    )
    apt-get -qq "${apt[@]}" update >&2
fi

# One call for all packages, because apt reads all its lists in each call.
declare -A candidates
while read -r name version; do
    candidates[$name]=$version
done < <(apt-cache "${apt[@]}" policy "${@/%/:$arch}" | awk -v arch="$arch" '
    # apt names packages of the native architecture without it.
    /^[^ ]/ { sub(/:$/, "", $1); name = $1 ~ /:/ ? $1 : $1 ":" arch }
    $1 == "Candidate:" { print name, $2 }')
wanted=$(
    if [ -n "$suite" ]; then
        echo "$asked"
    fi
    for package; do
        version=${candidates[$package:$arch]-}
        if [ -z "$version" ] || [ "$version" = "(none)" ]; then
            echo "packages.sh: apt has no $package:$arch: run: sudo apt-get update" >&2
            exit 1
        fi
        echo "$package:$arch=$version"
    done
    for glob in "${only[@]}"; do
        echo "only $glob"
    done
)

if [ "$(cat "$directory/.packages" 2>/dev/null)" != "$wanted" ]; then
    mkdir -p "$(dirname "$directory")"
    fresh=$(mktemp -d "$directory.XXXXXX")
    trap 'rm -rf "$fresh" ${lists:+"$lists"}' EXIT
    mkdir "$fresh/.debs"
    words=$(grep -v '^only \|^suite ' <<<"$wanted")
    # shellcheck disable=SC2086 # one word per package
    (cd "$fresh/.debs" && apt-get -qq "${apt[@]}" -o APT::Sandbox::User=root download $words >&2)
    for deb in "$fresh"/.debs/*.deb; do
        if [ ${#only[@]} -gt 0 ]; then
            # It is no error if a glob matches no file of a package.
            dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$fresh" --wildcards "${only[@]}" 2>/dev/null || true
        else
            dpkg-deb -x "$deb" "$fresh"
        fi
    done
    rm -rf "$fresh/.debs"
    chmod 755 "$fresh"
    echo "$wanted" >"$fresh/.packages"
    rm -rf "$directory"
    # Another process may have finished first.
    mv -T "$fresh" "$directory" 2>/dev/null || [ -e "$directory/.packages" ]
fi
(cd "$directory" && pwd)
