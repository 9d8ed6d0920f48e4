#!/bin/sh
# Looks up 100,000 random code addresses of PROGRAM with binutils, llvm-symbolizer and Unspool, and
# prints the processor time of each: the median of five rounds in turn.
#
#   tests/benches/addr2line.sh PROGRAM [UNSPOOL]
set -eu
program=$1
unspool=${2:-target/release/unspool}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

readelf -SW "$program" | sed 's/^ *\[ *[0-9]*\] *//' | python3 -c '
import random, sys
random.seed(1)
sections = []
for line in sys.stdin:
    words = line.split()
    if len(words) > 7 and "X" in words[6] + words[7]:
        sections.append((int(words[2], 16), int(words[4], 16)))
for _ in range(100000):
    start, size = random.choices(sections, [size for _, size in sections])[0]
    print(hex(start + random.randrange(size)))
' > "$folder/addresses"

round() {
    name=$1
    shift
    /usr/bin/time -a -o "$folder/$name.times" -f '%U %S %e' "$@" \
        < "$folder/addresses" > "$folder/$name.out"
}
for _ in 1 2 3 4 5; do
    round binutils addr2line -e "$program" -f -i
    round llvm llvm-symbolizer --obj="$program" --output-style=GNU --no-demangle
    round unspool "$unspool" addr2line -e "$program" -f -i
done
for name in binutils llvm unspool; do
    awk -v name=$name '{ print $1 + $2, $3, name }' "$folder/$name.times" | sort -n | sed -n 3p
done
cmp "$folder/binutils.out" "$folder/unspool.out" && echo "binutils and unspool agree"
