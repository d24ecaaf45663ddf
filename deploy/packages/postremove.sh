#!/bin/sh
# After a removal. dpkg keeps settings, tokens and the spool until `purge`; rpm knows no such thing. The users, and what processes keep below /var/lib, are left.
set -e
case ${1:-} in
purge | 0)
  rm -rf /var/spool/forestay
  rm -f /etc/forestay/watcher.token
  rmdir /etc/forestay/sites /etc/forestay 2>/dev/null || true
  ;;
esac
case ${1:-} in
remove | purge | 0)
  # dpkg removes /opt when nothing else is in it; the base system has it.
  [ -e /opt ] || mkdir -m 755 /opt
  [ ! -d /run/systemd/system ] || systemctl daemon-reload
  ;;
esac
