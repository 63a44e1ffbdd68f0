"""`python -m gfgn`: the same as the command `gfgn`."""

from gfgn.cli import main

if __name__ == "__main__":
    main()
