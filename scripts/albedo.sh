#!/bin/sh
# Runs a verb through dist/albedo, which is compiled first where it is missing or older than what it is made of.
# The check costs a few milliseconds and `exec` keeps the process id, so that a signal to this script reaches
# the program. From source the same start takes several times as long.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
executable=$root/dist/albedo
PATH=$root/node_modules/.bin:$PATH

stale() {
  [ ! -x "$executable" ] || [ -n "$(find "$root/src" "$root/migrations" "$root/package.json" \
    "$root/package-lock.json" "$root/scripts/build.ts" -newer "$executable" 2>&1 | head -n 1)" ]
}

if stale; then
  echo "albedo: compiling dist/albedo (once, a few seconds)" >&2
  if ! bun "$root/scripts/build.ts" --executable >&2; then
    echo "albedo: dist/albedo could not be compiled, so this runs from source" >&2
    exec bun "$root/src/main.ts" "$@"
  fi
fi
exec "$executable" "$@"
