"""Ctrl-C reaches the commands that tests start, also when the run itself was started in the background."""

import signal

# A shell ignores SIGINT for what it puts in the background, and processes hand that down.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
