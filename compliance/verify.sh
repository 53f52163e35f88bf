#!/bin/sh
# The second route: the ledger of a run checked with public tools alone (awk, grep, sed, base64, openssl, sha256sum).
#   sh verify.sh RUN_FOLDER OPERATOR.pub.pem      the key comes from outside; its fingerprint is printed to compare
# It walks the chain, checks every tree head (signature, run, place, number of lines, RFC 6962 root), the closing
# statement and the digests that it gives. Whether the run is complete or a draft, and a witness, are for verify.py.
# Exit code 0: all hold; 1: something does not; 2: wrong use.
set -u
export LC_ALL=C # lengths are in bytes
run=${1:-} key=${2:-}
[ -f "$run/ledger/events.jsonl" ] && [ -f "$key" ] || { echo "usage: sh verify.sh RUN_FOLDER OPERATOR.pub.pem" >&2; exit 2; }
ledger=$run/ledger/events.jsonl bad=0
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
fail() { echo "BROKEN: $*"; bad=1; }
digest_of() { sha256sum | cut -d' ' -f1; }
signed() { openssl pkeyutl -verify -pubin -inkey "$key" -rawin -in "$1" -sigfile "$2" > /dev/null 2>&1; }
echo "fingerprint of the key: $(openssl pkey -pubin -in "$key" -outform DER | digest_of)"

# 1. The chain: every line names the SHA-256 of the line before it. `read` drops zero bytes and a last line without end.
tr -d '\000' < "$ledger" | cmp -s - "$ledger" || fail "the ledger holds a zero byte"
[ "$(tail -c 1 "$ledger" | od -An -tx1 | tr -d ' ')" = 0a ] || fail "the last line is torn"
: > "$work/leaves"
prev=$(printf '%064d' 0) n=0 torn=
while IFS= read -r line; do
  n=$((n + 1))
  case $line in
    '{'*'"prev":"'*'}')
      case $line in
        *"\"prev\":\"$prev\""*"\"seq\":$((n - 1)),"*) ;;
        *) fail "line $n does not follow the one before it" ;;
      esac
      case $torn$line in
        '{'* | torn*'"event":"resumed"'*) ;;
        *) fail "before line $n stands a line that is no record" ;;
      esac
      torn= ;;
    *) echo "note: line $n is torn"; torn=torn ;;
  esac
  prev=$(printf '%s' "$line" | sha256sum) prev=${prev%% *}
  { printf '\000'; printf '%s' "$line"; } | sha256sum >> "$work/leaves"
done < "$ledger"
[ -z "$torn" ] || fail "the last line, $n, is no record"
echo "chain: $n lines"

# 2. Every tree head: signature, of this run, in its place, and not more lines than are there.
origin=grpo-lib/$(sed -n 's/.*"run_id":"\([^"]*\)".*/\1/p' "$ledger" | head -n 1)
newest=0
: > "$work/wanted"
for head in "$run"/ledger/tree-heads/*.note; do
  name=${head##*/}
  [ -f "$head" ] || { fail "there is no tree head"; break; }
  awk '/^$/{exit}{print}' "$head" > "$work/body"
  grep -a '^— ' "$head" | head -n 1 | awk '{print $3}' | base64 -d 2> /dev/null | tail -c 64 > "$work/sig"
  signed "$work/body" "$work/sig" || fail "signature of $name does not hold"
  [ "$(sed -n 1p "$work/body" | tr -d '\000')" = "$origin" ] || fail "$name is of another run"
  size=$(sed -n 2p "$work/body" | tr -d '\000')
  case $size in '' | *[!0-9]* | 0* | ??????????*) fail "$name gives no number of lines"; continue ;; esac
  [ "${name%%.*}" = "$(printf '%09d' "$size")" ] || fail "$name is not in its place"
  [ "$size" -le "$n" ] || fail "$name covers $size lines, $n are there: the end was cut"
  root=$(sed -n 3p "$work/body" | base64 -d 2> /dev/null | od -An -v -tx1 | tr -d ' \n')
  echo "$size $root $name" >> "$work/wanted"
  newest=$size
done

# 3. The closing statement: its digest in the ledger, its signature (DSSE), the ledger that it is about.
statement=$run/statement.dsse.json
: > "$work/sums"
recorded=$(grep -a '"event":"statement_signed"' "$ledger" | sed -n 's/.*"statement_sha256":"\([^"]*\)".*/\1/p' | tail -n 1)
if [ -f "$statement" ]; then
  [ "$(digest_of < "$statement")" = "${recorded:-$(digest_of < "$statement")}" ] || fail "the closing statement is not the recorded one"
  field() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" "$statement" | tr -d '\000' | head -n 1; }
  field payload | base64 -d > "$work/payload" 2> /dev/null
  type=$(field payloadType)
  { printf 'DSSEv1 %s %s %s ' "${#type}" "$type" "$(wc -c < "$work/payload" | tr -d ' ')"; cat "$work/payload"; } > "$work/pae"
  field sig | base64 -d > "$work/sig" 2> /dev/null
  signed "$work/pae" "$work/sig" || fail "signature of the closing statement does not hold"
  about=$(sed -n 's/.*"ledger":{"head":"[0-9a-f]*","root":"\([0-9a-f]*\)","size":\([0-9]*\)}.*/\2 \1/p' "$work/payload")
  echo "${about:-0 none} statement" >> "$work/wanted"
  grep -a -o '{"digest":{"sha256":"[0-9a-f]*"},"name":"[^"]*"}' "$work/payload" \
    | sed 's/{"digest":{"sha256":"\([0-9a-f]*\)"},"name":"\([^"]*\)"}/\1  \2/' > "$work/sums"
  [ -s "$work/sums" ] || fail "the closing statement names no file"
elif [ -n "$recorded" ]; then
  fail "the closing statement is missing; the ledger records one"
else
  echo "note: there is no closing statement; no file was checked"
fi

# 4. The roots: node = SHA-256(0x01 || left || right). `peaks` holds the full subtrees so far, the smallest first.
octal='{ for (i = 1; i < length($0); i += 2) printf "\\0%03o", (index(h, substr($0, i, 1)) - 1) * 16 + index(h, substr($0, i + 1, 1)) - 1 }'
node() { { printf '\001'; printf '%b' "$(echo "$1$2" | awk -v h=0123456789abcdef "$octal")"; } | digest_of; }
root_of() {
  root=${1#*:}
  shift
  for peak; do root=$(node "${peak#*:}" "$root"); done
  echo "$root"
}
if [ "$bad" -eq 0 ]; then
  sizes=" $(cut -d' ' -f1 "$work/wanted" | tr '\n' ' ')" i=0 peaks=
  : > "$work/roots"
  while read -r value _; do
    i=$((i + 1)) height=0
    while [ "${peaks%%:*}" = "$height" ]; do
      left=${peaks#*:}
      value=$(node "${left%% *}" "$value") peaks=${peaks#* } height=$((height + 1))
    done
    peaks="$height:$value $peaks"
    case $sizes in *" $i "*) echo "$i $(root_of $peaks)" >> "$work/roots" ;; esac
  done < "$work/leaves"
  while read -r size root name; do
    grep -q -x "$size $root" "$work/roots" && continue
    case $name in
      statement) fail "the closing statement is about another ledger" ;;
      *) fail "the first $size lines are not those that were signed ($name)" ;;
    esac
  done < "$work/wanted"
  echo "newest tree head: $newest lines; after it $((n - newest)) covered by the chain alone"
fi

# 5. The files that the statement names. Two of them change later by right; the ledger has their newest digest.
while read -r digest name; do
  case $name in
    custody.json | statements.json)
      later=$(sed -n "s/.*\"${name%.json}_sha256\":\"\([^\"]*\)\".*/\1/p" "$ledger" | tail -n 1)
      digest=${later:-$digest} ;;
  esac
  if [ -f "$run/$name" ]; then
    [ "$(digest_of < "$run/$name")" = "$digest" ] || fail "$name was changed"
  elif [ -f "$run/bundle.json" ] || grep -a '"event":"purged"' "$ledger" | grep -q "\"folder\":\"${name%%/*}\""; then
    echo "note: $name is not here; its digest is $digest"
  else
    fail "$name is missing"
  fi
done < "$work/sums"
[ "$bad" -eq 0 ] && echo "all that was checked holds" || echo "something does not hold"
exit "$bad"
