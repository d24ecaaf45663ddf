# Programs of other releases of Debian, each release in a root file system of its own below the cache. Fetching one needs root.

rootfs_folder() { echo "$CACHE/debian-$1"; }

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
    need debootstrap debootstrap
    say "fetching Debian $suite (a minute)"
    work=$(mktemp -d "$CACHE/fetch.XXXXXX")
    debootstrap --variant=minbase "$suite" "$work" "$DEBIAN_ARCHIVE" >"$log" 2>&1 </dev/null ||
      { tail -n 5 "$log" >&2; rm -rf "$work"; die "Debian $suite could not be fetched; see $log"; }
    # No package starts a daemon of its own.
    printf '#!/bin/sh\nexit 101\n' >"$work/usr/sbin/policy-rc.d"
    # Mirrors may be days behind the archive.
    echo 'Acquire::Check-Valid-Until "false";' >"$work/etc/apt/apt.conf.d/90-mirror"
    touch "$work/etc/forestay-rootfs"
    chmod 755 "$work" "$work/usr/sbin/policy-rc.d"
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
in_rootfs() { # in_rootfs SUITE [OPTION OF BWRAP…] -- COMMAND…: sets ROOTFS_COMMAND to the words that run a command there
  local place words=(bwrap --bind "$(rootfs_folder "$1")" / --dev-bind /dev /dev --bind /proc /proc --bind /sys /sys --ro-bind /etc/hosts /etc/hosts)
  for place in /*; do
    case $place in
      /bin | /sbin | /lib* | /usr | /etc | /var | /boot | /run | /proc | /sys | /dev | /lost+found) ;;
      *) [ ! -d "$place" ] || [ -L "$place" ] || words+=(--bind "$place" "$place") ;;
    esac
  done
  words+=(--bind "$STATE" "$STATE")
  # shellcheck disable=SC2034
  ROOTFS_COMMAND=("${words[@]}" "${@:2}")
}

rootfs_clients() { # rootfs_clients FOLDER SUITE OPTIONS PROGRAM…: commands that run the release's programs, for a PATH of this machine
  local folder=$1 suite=$2 options=$3 program; shift 3
  mkdir -p "$folder"
  for program; do
    # shellcheck disable=SC2086
    in_rootfs "$suite" $options --
    {
      echo '#!/bin/sh'
      # A job of that Slurm or HTCondor inherits the PATH, and is inside already.
      printf '[ ! -e /etc/forestay-rootfs ] || exec /usr/bin/%s "$@"\n' "$program"
      printf 'exec'; printf ' %q' "${ROOTFS_COMMAND[@]:0:${#ROOTFS_COMMAND[@]}-1}"; printf ' --chdir "$PWD" -- /usr/bin/%s "$@"\n' "$program"
    } >"$folder/$program"
    chmod 755 "$folder/$program"
  done
}
