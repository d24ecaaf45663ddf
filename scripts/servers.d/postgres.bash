# PostgreSQL: one server with its own data folder, trusted on loopback only, fsync on.

postgres_dir() { echo "$STATE/postgres"; }

postgres_bin() { # the folder of the newest PostgreSQL that is installed
  local dir best=''
  for dir in /usr/lib/postgresql/*/bin; do [ -x "$dir/initdb" ] && best+="$dir"$'\n'; done
  if [ -n "$best" ]; then printf '%s' "$best" | sort -V | tail -1; return; fi
  dir=$(command -v initdb) && dirname "$(readlink -f "$dir")"
}

postgres_launch() { # if it is not running
  local dir; dir=$(postgres_dir)
  if alive "$dir/server.pid"; then return 0; fi
  # No Unix socket: its path may be longer than the kernel allows.
  detach "$dir/server.pid" "$dir/server.log" env -i PATH="$PATH" LANG=C.UTF-8 \
    "$(postgres_bin)/postgres" -D "$dir/data" -p "$(cat "$dir/port")" \
    -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=on \
    -c max_connections=300 -c shared_buffers=256MB -c max_wal_size=4GB
}

postgres_prepare() { # under the lock
  local port=$1 fresh=$2 dir first
  dir=$(postgres_dir)
  if [ "$fresh" = yes ]; then postgres_stop; rm -rf "$dir"; fi
  if alive "$dir/server.pid"; then
    [ -z "$port" ] || [ "$port" = "$(cat "$dir/port")" ] || die "PostgreSQL is already running at port $(cat "$dir/port")"
    return 0
  fi
  mkdir -p "$dir"
  if [ ! -e "$dir/initialised" ]; then
    rm -rf "$dir/data"; mkdir -p "$dir/data"; chmod 700 "$dir/data"; own "$dir"
    ( cd / && unprivileged "$(postgres_bin)/initdb" -D "$dir/data" -U forestay --auth-host=trust --auth-local=reject \
        --encoding=UTF8 --locale=C.UTF-8 ) >"$dir/initdb.log" 2>&1 || { tail -n 5 "$dir/initdb.log" >&2; die "initdb failed"; }
    touch "$dir/initialised"
  fi
  first=${port:-$(cat "$dir/port" 2>/dev/null || echo 5432)}
  while ! port_free "$first"; do
    [ -z "$port" ] || die "port $port is taken; choose another with --port"
    first=$((first + 1))
  done
  echo "$first" >"$dir/port"
  postgres_launch
}

postgres_sql() { "$(postgres_bin)/psql" -X -h 127.0.0.1 -p "$(cat "$(postgres_dir)/port")" -U forestay -d "$1" -Atc "$2" 2>/dev/null; }

postgres_check() {
  local dir; dir=$(postgres_dir)
  if ! alive "$dir/server.pid"; then
    # After kill -9 the old children hold the shared memory for a moment; the new server must be asked again.
    tail -n 5 "$dir/server.log" | grep -q 'shared memory\|lock file' || return 2
    postgres_launch
    return 1
  fi
  [ "$(postgres_sql postgres "select 1")" = 1 ] || return 1
  [ "$(postgres_sql postgres "select 1 from pg_database where datname = 'forestay'")" = 1 ] ||
    postgres_sql postgres "create database forestay" >/dev/null || return 1
}

postgres_wait() { until_ready PostgreSQL "$(postgres_dir)/server.log" postgres_check; }

postgres_start() { # postgres_start PORT FRESH
  local since; since=$(now)
  install_postgres
  with_lock postgres_prepare "$@"
  postgres_wait
  say "PostgreSQL answers at 127.0.0.1:$(cat "$(postgres_dir)/port") after $(seconds_since "$since")"
}

postgres_stop() { halt "$(postgres_dir)/server.pid" INT; } # INT is PostgreSQL's fast shutdown

postgres_address() { echo "postgresql://forestay@127.0.0.1:$(cat "$(postgres_dir)/port")/forestay"; }
