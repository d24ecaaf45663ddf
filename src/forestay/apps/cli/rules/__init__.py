"""Commands for rules, playbooks and packs."""
