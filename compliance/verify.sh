#!/bin/sh
# The second route: the ledger of a run checked with public tools alone (awk, grep, sed, base64, openssl, sha256sum).
#   sh verify.sh RUN_FOLDER OPERATOR.pub.pem      the key comes from outside; its fingerprint is printed to compare
# It walks the chain, checks the newest tree head's signature, the number of lines it covers, its RFC 6962 root, and the
# digests that the closing statement gives. Exit code 0: all hold; 1: something does not; 2: wrong use.
set -u
run=${1:-} key=${2:-}
[ -f "$run/ledger/events.jsonl" ] && [ -f "$key" ] || { echo "usage: sh verify.sh RUN_FOLDER OPERATOR.pub.pem" >&2; exit 2; }
ledger=$run/ledger/events.jsonl bad=0
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
fail() { echo "BROKEN: $*"; bad=1; }
echo "fingerprint of the key: $(openssl pkey -pubin -in "$key" -outform DER | sha256sum | cut -d' ' -f1)"

# 1. The chain: every line names the SHA-256 of the line before it.
prev=$(printf '%064d' 0) n=0
while IFS= read -r line; do
  n=$((n + 1))
  case $line in
    '{'*"\"prev\":\"$prev\""*'}') ;;
    '{'*'"prev":'*'}') fail "line $n does not follow the one before it" ;;
    *) echo "note: line $n is torn" ;;
  esac
  prev=$(printf '%s' "$line" | sha256sum | cut -d' ' -f1)
  printf '%s' "$line" | { printf '\000'; cat; } | sha256sum | cut -d' ' -f1 >> "$work/leaves"
done < "$ledger"
echo "chain: $n lines"

# 2. Every tree head: signature, and not more lines than are there.
newest=
for head in "$run"/ledger/tree-heads/*.note; do
  [ -f "$head" ] || { fail "there is no tree head"; break; }
  awk '/^$/{exit}{print}' "$head" > "$work/body"
  grep '^— ' "$head" | head -n 1 | awk '{print $3}' | base64 -d 2> /dev/null | tail -c 64 > "$work/sig"
  openssl pkeyutl -verify -pubin -inkey "$key" -rawin -in "$work/body" -sigfile "$work/sig" > /dev/null 2>&1 \
    || fail "signature of ${head##*/} does not hold"
  size=$(sed -n 2p "$work/body")
  name=${head##*/}
  [ "${name%%.*}" = "$(printf '%09d' "$size" 2> /dev/null)" ] || fail "$name is not in its place"
  [ "$size" -le "$n" ] 2> /dev/null || fail "${head##*/} covers $size lines, $n are there: the end was cut"
  newest=$head
done

# 3. The root of each head's lines, by pairing: node = SHA-256(0x01 || left || right), odd ones rise unchanged.
octal='{ for (i = 1; i < length($0); i += 2) printf "\\0%03o", (index(h, substr($0, i, 1)) - 1) * 16 + index(h, substr($0, i + 1, 1)) - 1 }'
unhex() { printf '%b' "$(awk -v h=0123456789abcdef "$octal")"; }
root_of() {
  head -n "$1" "$work/leaves" > "$work/level"
  while [ "$(wc -l < "$work/level")" -gt 1 ]; do
    : > "$work/next"
    while IFS= read -r left; do
      if IFS= read -r right; then
        { printf '\001'; echo "$left" | unhex; echo "$right" | unhex; } | sha256sum | cut -d' ' -f1 >> "$work/next"
      else
        echo "$left" >> "$work/next"
      fi
    done < "$work/level"
    mv "$work/next" "$work/level"
  done
  cat "$work/level"
}
if [ -n "$newest" ] && [ "$bad" -eq 0 ]; then
  size=$(sed -n 2p "$newest")
  [ "$(root_of "$size")" = "$(sed -n 3p "$newest" | base64 -d | od -An -v -tx1 | tr -d ' \n')" ] \
    || fail "the first $size lines are not those that were signed"
  echo "newest tree head: $size lines; after it $((n - size)) covered by the chain alone"
fi

# 4. The closing statement: its signature (DSSE) and the digests of the files it names.
if [ -f "$run/statement.dsse.json" ]; then
  field() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" "$run/statement.dsse.json" | head -n 1; }
  field payload | base64 -d > "$work/payload"
  type=$(field payloadType)
  { printf 'DSSEv1 %s %s %s ' "${#type}" "$type" "$(wc -c < "$work/payload" | tr -d ' ')"; cat "$work/payload"; } > "$work/pae"
  field sig | base64 -d > "$work/sig"
  openssl pkeyutl -verify -pubin -inkey "$key" -rawin -in "$work/pae" -sigfile "$work/sig" > /dev/null 2>&1 \
    || fail "signature of the closing statement does not hold"
  grep -o '{"digest":{"sha256":"[0-9a-f]*"},"name":"[^"]*"}' "$work/payload" \
    | sed 's/{"digest":{"sha256":"\([0-9a-f]*\)"},"name":"\([^"]*\)"}/\1  \2/' > "$work/sums"
  while read -r digest name; do
    if [ -f "$run/$name" ]; then
      [ "$(sha256sum < "$run/$name" | cut -d' ' -f1)" = "$digest" ] || fail "$name was changed"
    else
      echo "note: $name is not here; its digest is $digest"
    fi
  done < "$work/sums"
fi
[ "$bad" -eq 0 ] && echo "all that was checked holds" || echo "something does not hold"
exit "$bad"
