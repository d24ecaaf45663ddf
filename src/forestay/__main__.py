"""`python -m forestay` is the `forestay` command."""

from forestay.apps.entry import main

main()
