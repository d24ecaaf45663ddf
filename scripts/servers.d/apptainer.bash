# Apptainer of a newer Debian, which Debian 12 does not have: in that release's root file system, called as if it were this machine's.

apptainer_program() { echo "$CACHE/apptainer-$APPTAINER_SUITE/apptainer"; }

install_apptainer() {
  local root program place mounts=''; root=$(rootfs_folder "$APPTAINER_SUITE") program=$(apptainer_program)
  install_in "$APPTAINER_SUITE" apptainer
  # A build shows the host's own to the image.
  echo '127.0.0.1 localhost' >"$root/etc/hosts"
  for place in $(rootfs_places); do [ "$place" = "$STATE" ] || mounts+=" $place"; done
  mkdir -p "$(dirname "$program")"
  # It must run inside another root, not below one; in one process, so that its signals reach it.
  cat >"$program" <<P
#!/bin/sh
# shellcheck disable=SC2016
exec unshare -m sh -c 'root=\$1 at=\$2; shift 2; mount --rbind "\$root" "\$root" || exit
for place in$mounts; do mkdir -p "\$root\$place" && mount --rbind "\$place" "\$root\$place" || exit; done
mount -t tmpfs tmpfs "\$root/run" && cd "\$root" && pivot_root . mnt && umount -l /mnt || exit
cd "\$at" 2>/dev/null || cd /; exec /usr/bin/apptainer "\$@"' - $root "\$PWD" "\$@"
P
  chmod 755 "$program"
}
