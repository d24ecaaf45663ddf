"""`python -m holdfast` is the `holdfast` command."""

from holdfast.apps.entry import main

main()
