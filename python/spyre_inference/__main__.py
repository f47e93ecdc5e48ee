"""``python -m spyre_inference`` is the program ``spyre``."""

from ._program import main

main()
