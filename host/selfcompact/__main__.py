"""`python -m selfcompact`."""

from selfcompact.cli import main

main()
