"""`python -m treegraft` is the command `treegraft`."""

from treegraft.cli.main import main

main()
