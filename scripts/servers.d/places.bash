# Where programs are kept (cache) and where servers live (state).
# Servers never run as root: started by root they become `nobody`, who must be able to reach both places.

UNPRIVILEGED_UID=65534

am_root() { [ "$(id -u)" = 0 ]; }

unprivileged() { # unprivileged COMMAND…: replaces this process
  if am_root; then
    exec setpriv --reuid=$UNPRIVILEGED_UID --regid=$UNPRIVILEGED_UID --clear-groups -- "$@"
  fi
  exec "$@"
}

reachable() { ( cd / && unprivileged test -x "$1" ) 2>/dev/null; }

choose_places() {
  local home_cache=${XDG_CACHE_HOME:-$HOME/.cache}/forestay
  local home_state=${XDG_STATE_HOME:-$HOME/.local/state}/forestay/servers
  # On most machines root's home is closed to `nobody`; then the system's own folders are used.
  if am_root && ! reachable "$HOME"; then
    home_cache=/var/cache/forestay
    home_state=/var/lib/forestay/servers
  fi
  CACHE=${FORESTAY_CACHE_DIR:-$home_cache}
  STATE=${FORESTAY_SERVERS_DIR:-$home_state}
  mkdir -p "$CACHE" "$STATE"
  if am_root; then chmod a+rx "$CACHE" "$STATE"; fi
  CACHE=$(cd "$CACHE" && pwd) STATE=$(cd "$STATE" && pwd)
  local place
  for place in "$CACHE" "$STATE"; do
    reachable "$place" || die "user nobody cannot reach $place; choose another with FORESTAY_CACHE_DIR or FORESTAY_SERVERS_DIR"
  done
}

own() { if am_root; then chown -R $UNPRIVILEGED_UID:$UNPRIVILEGED_UID "$@"; fi; }

say() { printf 'servers: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

with_lock() { # with_lock COMMAND…: one at a time for this state folder, so that two starts make one server
  ( flock 9; "$@" ) 9>"$STATE/lock"
}
