# Programs of other releases of Debian, each release in a root file system of its own below the cache. Fetching one needs root.

rootfs_folder() { echo "$CACHE/debian-$1"; }

fetch_debian() { # fetch_debian SUITE FOLDER LOG: the smallest system, in which no package starts a daemon
  need debootstrap debootstrap
  say "fetching Debian $1 (a minute)"
  debootstrap --variant=minbase "$1" "$2" "$DEBIAN_ARCHIVE" >"$3" 2>&1 </dev/null ||
    { tail -n 5 "$3" >&2; rm -rf "$2"; die "Debian $1 could not be fetched; see $3"; }
  printf '#!/bin/sh\nexit 101\n' >"$2/usr/sbin/policy-rc.d"
  # Mirrors may be days behind the archive.
  echo 'Acquire::Check-Valid-Until "false";' >"$2/etc/apt/apt.conf.d/90-mirror"
  chmod 755 "$2" "$2/usr/sbin/policy-rc.d"
}

install_roots() { # bare root file systems; nothing is ever written to them
  local suite work
  am_root || die "fetching a root file system needs root"
  for suite in $BARE_SUITES; do
    [ ! -d "$CACHE/bare-$suite" ] || continue
    work=$(mktemp -d "$CACHE/fetch.XXXXXX")
    fetch_debian "$suite" "$work" "$CACHE/bare-$suite.log"
    mv -T "$work" "$CACHE/bare-$suite"
  done
}

install_rpm() { need rpm rpm; }

install_podman() { # images without a Docker engine
  command -v podman buildah runc >/dev/null || apt_install podman buildah runc
}

install_in() { # install_in SUITE PACKAGE…: the packages, in the root file system of that release
  local suite=$1 folder since package missing=() work log; folder=$(rootfs_folder "$1") since=$(now) log=$CACHE/debian-$1.log; shift
  need bwrap bubblewrap
  for package; do
    if [ -z "$(compgen -G "$folder/var/lib/dpkg/info/$package.list")$(compgen -G "$folder/var/lib/dpkg/info/$package:*.list")" ]; then
      missing+=("$package")
    fi
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  am_root || die "$* of Debian $suite: fetching a root file system needs root"
  if [ ! -x "$folder/usr/bin/apt-get" ]; then
    work=$(mktemp -d "$CACHE/fetch.XXXXXX")
    fetch_debian "$suite" "$work" "$log"
    touch "$work/etc/forestay-rootfs"
    mv -T "$work" "$folder"
  fi
  say "installing ${missing[*]} of Debian $suite"
  # A process namespace: what a package's script starts ends with it.
  unshare -m -p -f --mount-proc="$folder/proc" chroot "$folder" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
    sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@"' - "${missing[@]}" >"$log" 2>&1 </dev/null ||
    { tail -n 5 "$log" >&2; die "${missing[*]} could not be installed in $folder; see $log"; }
  say "${missing[*]} of Debian $suite installed after $(seconds_since "$since")"
}

# The files of this machine are seen at the same places as outside; programs, libraries and /etc are the release's own.
rootfs_places() { # a line for each folder at the top that is not the release's own
  local place
  for place in /*; do
    case $place in
      /bin | /sbin | /lib* | /usr | /etc | /var | /boot | /media | /mnt | /run | /srv | /lost+found) ;;
      *) [ ! -d "$place" ] || [ -L "$place" ] || echo "$place" ;;
    esac
  done
  echo "$STATE"
}

in_rootfs() { # in_rootfs SUITE COMMAND…: sets ROOTFS_COMMAND to the words that run a command there as root, in one process, so that its signals reach it
  local root place mounts; root=$(rootfs_folder "$1")
  # shellcheck disable=SC2016
  mounts='mount --bind /etc/hosts "$0/etc/hosts"'
  for place in $(rootfs_places); do
    mkdir -p "$root$place"
    mounts+=" && mount --rbind $place \"\$0$place\""
  done
  # Called by its bare name, as from a PATH: programs name themselves in their complaints.
  # shellcheck disable=SC2016
  ROOTFS_COMMAND=(unshare -m sh -c "$mounts"' && exec chroot "$0" bash -c "cd \"\$0\" 2>/dev/null; exec -a \"\${1##*/}\" \"\$@\"" "$PWD" "$@"' "$root" "${@:2}")
}

in_rootfs_as_user() { # in_rootfs_as_user SUITE [OPTION OF BWRAP…] -- COMMAND…: the same as an ordinary user, whatever this one is
  local place words=(bwrap --unshare-user --uid 1000 --gid 1000 --bind "$(rootfs_folder "$1")" / --dev-bind /dev /dev --ro-bind /etc/hosts /etc/hosts)
  for place in $(rootfs_places); do [ "$place" = /dev ] || words+=(--bind "$place" "$place"); done
  ROOTFS_COMMAND=("${words[@]}" "${@:2}")
}

rootfs_client() { # rootfs_client FILE PROGRAM: a command for a PATH of this machine, which runs the program by ROOTFS_COMMAND
  mkdir -p "$(dirname "$1")"
  {
    echo '#!/bin/sh'
    # A job of that Slurm or HTCondor inherits the PATH, and is inside already.
    printf '[ ! -e /etc/forestay-rootfs ] || exec /usr/bin/%s "$@"\n' "$2"
    printf 'exec'; printf ' %q' "${ROOTFS_COMMAND[@]}"; printf ' "$@"\n'
  } >"$1"
  chmod 755 "$1"
}
