# XRootD: root:// and HTTP on one port. It listens on every address there is, so it runs in a network of its own,
# and own_network.py hands on what comes to 127.0.0.1.

xrootd_dir() { echo "$STATE/xrootd"; }

install_xrootd() {
  need curl curl
  if ! command -v xrootd xrdcp >/dev/null || ! ldconfig -p | grep -q libXrdHttp-5; then
    apt_install xrootd-server xrootd-client xrootd-server-plugins
  fi
  [ -x /usr/bin/python3 ] || apt_install python3-minimal # one that user nobody may run
}

xrootd_launch() {
  local dir port; dir=$(xrootd_dir) port=$(cat "$(xrootd_dir)/port")
  if alive "$dir/server.pid"; then return 0; fi
  detach "$dir/server.pid" "$dir/server.log" env -i PATH="$PATH" HOME="$dir" \
    /usr/bin/python3 -S -E "$dir/own_network.py" "$port" xrootd -c "$dir/server.cfg"
}

xrootd_prepare() { # under the lock
  local port=$1 fresh=$2 dir first; dir=$(xrootd_dir)
  if [ "$fresh" = yes ]; then xrootd_stop; rm -rf "$dir"; fi
  if alive "$dir/server.pid"; then
    [ -z "$port" ] || [ "$port" = "$(cat "$dir/port")" ] || die "XRootD is already running at port $(cat "$dir/port")"
    return 0
  fi
  mkdir -p "$dir/data" "$dir/admin"
  first=${port:-$(cat "$dir/port" 2>/dev/null || echo 1094)}
  while ! port_free "$first"; do
    [ -z "$port" ] || die "port $port is taken; choose another with --port"
    first=$((first + 1))
  done
  cp "$HERE/servers.d/own_network.py" "$dir/"
  printf '%s\n' "all.export /" "oss.localroot $dir/data" "all.adminpath $dir/admin" "all.pidpath $dir/admin" \
    "xrd.network nodnr" "xrd.port $first" "xrd.protocol http:$first libXrdHttp.so" >"$dir/server.cfg"
  echo "$first" >"$dir/port"
  own "$dir"
  xrootd_launch
}

xrootd_check() {
  alive "$(xrootd_dir)/server.pid" || return 2
  curl -s -m 5 -o /dev/null "$(xrootd_http)" || return 1
}

xrootd_wait() { until_ready XRootD "$(xrootd_dir)/server.log" xrootd_check; }

xrootd_start() { # xrootd_start PORT FRESH
  local since; since=$(now)
  install_xrootd
  with_lock xrootd_prepare "$@"
  xrootd_wait
  say "XRootD answers at $(xrootd_address) after $(seconds_since "$since")"
}

xrootd_stop() { halt "$(xrootd_dir)/server.pid" TERM; }

xrootd_address() { echo "root://127.0.0.1:$(cat "$(xrootd_dir)/port")//"; }
xrootd_http() { echo "http://127.0.0.1:$(cat "$(xrootd_dir)/port")/"; }
