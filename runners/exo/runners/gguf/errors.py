"""What an import can end in besides a model. Every error carries a stable code and a remedy."""


class ConversionError(Exception):
    """The root of all import errors."""

    code = "conversion_failed"

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.message = message
        self.remedy = remedy


class FileDamaged(ConversionError):
    """Raised when the file is no GGUF, is cut short or contradicts itself."""

    code = "gguf_damaged"


class Unsupported(ConversionError):
    """Raised, before anything is written, when the file asks for something we would get wrong."""

    code = "gguf_unsupported"


class DestinationTaken(ConversionError):
    """Raised when the folder to write exists already."""

    code = "destination_exists"


class DiskFull(ConversionError):
    """Raised, before anything is written, when the model would not fit on the disk."""

    code = "disk_full"
