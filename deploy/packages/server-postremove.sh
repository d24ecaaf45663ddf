#!/bin/sh
# After a removal. The store and /var/lib/forestay, with the signing key, are left.
set -e
case ${1:-} in
remove | 0)
  # The package `forestay` stays, or goes next.
  if [ -x /opt/forestay/bin/python ]; then /opt/forestay/bin/python -m compileall -qq /opt/forestay/lib || true; fi
  ;;
esac
case ${1:-} in
purge | 0)
  rm -f /etc/forestay/secrets.env
  rmdir /etc/forestay 2>/dev/null || true
  ;;
esac
case ${1:-} in
remove | purge | 0)
  [ ! -d /run/systemd/system ] || systemctl daemon-reload
  ;;
esac
