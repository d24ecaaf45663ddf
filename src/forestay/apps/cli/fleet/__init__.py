"""Commands for pilots, hosts, sites and peers."""
