from typing import Final

STATUS: Final[dict[str, int]]
