"""Chats and everything else that Apprise can reach."""
