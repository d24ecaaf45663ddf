"""How documents look outside the process."""
