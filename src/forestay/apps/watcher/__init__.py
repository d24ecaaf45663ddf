"""The watcher process."""
