"""The connection to the servers: identity, heartbeats, channel, lease, held claims."""
