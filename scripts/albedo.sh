#!/bin/sh
# Runs a verb through dist/albedo, which is compiled first where it is missing or older than what it is made of.
# From source the same start takes several times as long. Whatever this script starts on the way delays a daemon, so
# it starts nothing: the shell itself compares the times. `exec` keeps the process id, so that a signal to this
# script reaches the program.
set -eu
case $0 in
*/*) root=${0%/*}/.. ;;
*) root=.. ;;
esac
executable=$root/dist/albedo

# Directories count too: a file that was taken away changes nothing else.
is_stale() {
  [ -x "$executable" ] || return 0
  for part in "$root"/package.json "$root"/package-lock.json "$root"/scripts/build.ts \
    "$root"/migrations "$root"/migrations/* "$root"/src "$root"/src/* "$root"/src/*/*; do
    if [ "$part" -nt "$executable" ]; then return 0; fi
  done
  return 1
}

if is_stale; then
  PATH=$root/node_modules/.bin:$PATH
  echo "albedo: compiling dist/albedo (once, a few seconds)" >&2
  if ! bun "$root/scripts/build.ts" --executable >&2; then
    echo "albedo: dist/albedo could not be compiled, so this runs from source" >&2
    exec bun "$root/src/main.ts" "$@"
  fi
fi
exec "$executable" "$@"
