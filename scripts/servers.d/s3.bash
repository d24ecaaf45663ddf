# S3: s3proxy over a folder, with real signature checks. Its key is made at the first start and lives in its folder only.

s3_dir() { echo "$STATE/s3"; }
s3_jar() { echo "$CACHE/s3proxy-$S3PROXY_VERSION.jar"; }
s3_key() { sed -n "s/^s3proxy.$1=//p" "$(s3_dir)/server.properties"; } # s3_key identity|credential

install_s3() {
  local work
  need curl curl
  install_jdk
  if [ -s "$(s3_jar)" ]; then return 0; fi
  need mvn maven
  say "fetching s3proxy $S3PROXY_VERSION (55 MB)"
  work=$(mktemp -d "$CACHE/fetch.XXXXXX")
  ( cd "$work" && mvn -q -B -C "org.apache.maven.plugins:maven-dependency-plugin:$MAVEN_DEPENDENCY_VERSION:copy" \
      -Dartifact="org.gaul:s3proxy:$S3PROXY_VERSION:jar:jar-with-dependencies" -DoutputDirectory="$work" ) >&2 </dev/null ||
    { rm -rf "$work"; die "s3proxy could not be fetched"; }
  chmod -R a+rX "$work"
  mv "$work"/s3proxy-*.jar "$(s3_jar)"
  rm -rf "$work"
}

random_word() { od -An -N 20 -tx1 /dev/urandom | tr -d ' \n'; }

s3_launch() {
  local dir; dir=$(s3_dir)
  if alive "$dir/server.pid"; then return 0; fi
  detach "$dir/server.pid" "$dir/server.log" env -i PATH="$PATH" LANG=C.UTF-8 \
    "$(find_jdk)/bin/java" -Xmx256m -XX:TieredStopAtLevel=1 -Djava.io.tmpdir="$dir/tmp" -jar "$(s3_jar)" --properties "$dir/server.properties"
}

s3_prepare() { # under the lock
  local port=$1 fresh=$2 dir first; dir=$(s3_dir)
  if [ "$fresh" = yes ]; then s3_stop; rm -rf "$dir"; fi
  if alive "$dir/server.pid"; then
    [ -z "$port" ] || [ "$port" = "$(cat "$dir/port")" ] || die "s3proxy is already running at port $(cat "$dir/port")"
    return 0
  fi
  mkdir -p "$dir/data/forestay" "$dir/tmp" # a folder is a bucket
  first=${port:-$(cat "$dir/port" 2>/dev/null || echo 9010)}
  while ! port_free "$first"; do
    [ -z "$port" ] || die "port $port is taken; choose another with --port"
    first=$((first + 1))
  done
  local identity credential
  if [ -e "$dir/server.properties" ]; then
    identity=$(s3_key identity) credential=$(s3_key credential)
  else
    identity=$(random_word | cut -c1-20) credential=$(random_word)
  fi
  ( umask 077
    printf '%s\n' "s3proxy.endpoint=http://127.0.0.1:$first" s3proxy.authorization=aws-v2-or-v4 \
      "s3proxy.identity=$identity" "s3proxy.credential=$credential" jclouds.provider=filesystem-nio2 \
      "jclouds.filesystem.basedir=$dir/data" jclouds.identity=local jclouds.credential=local >"$dir/server.properties" )
  echo "$first" >"$dir/port"
  own "$dir"
  s3_launch
}

s3_check() {
  alive "$(s3_dir)/server.pid" || return 2
  # Without a signature it refuses, and that is an answer.
  [ "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "$(s3_address)/")" = 403 ] || return 1
}

s3_wait() { until_ready s3proxy "$(s3_dir)/server.log" s3_check; }

s3_start() { # s3_start PORT FRESH
  local since; since=$(now)
  install_s3
  with_lock s3_prepare "$@"
  s3_wait
  say "s3proxy answers at $(s3_address) after $(seconds_since "$since")"
}

s3_stop() { halt "$(s3_dir)/server.pid" TERM; }

s3_address() { echo "http://127.0.0.1:$(cat "$(s3_dir)/port")"; }
