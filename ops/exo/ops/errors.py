"""What ends a command: one line on stderr and an exit code that means something.

CommandError             1  it failed
├── UsageError           2  called wrongly: an unknown flag, a bad value
│   └── SettingsError    2  a setting cannot be read; names the file or the variable
└── NoNodeError          3  no node runs that could answer
"""

from collections.abc import Sequence

OK = 0
FAILED = 1
USAGE = 2
NO_NODE = 3
INTERRUPTED = 130
"""As a shell counts it: 128 and the number of SIGINT."""


class CommandError(Exception):
    """Raised when a command cannot do its work; `remedy` says what to do about it."""

    exit_code = FAILED

    def __init__(self, message: str, *, remedy: str = "", code: str = "", evidence: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.code = code
        self.evidence = tuple(evidence)

    def __str__(self) -> str:
        text = f"{self.message} ({self.code})" if self.code else self.message
        return f"{text}; {self.remedy}" if self.remedy else text


class UsageError(CommandError):
    """Raised when a command is called in a way it does not know."""

    exit_code = USAGE


class SettingsError(UsageError):
    """Raised when a setting has no such name or cannot have this value."""


class NoNodeError(CommandError):
    """Raised when a command needs a running node and there is none."""

    exit_code = NO_NODE
