"""What the property tests have met: counted while they run, printed at the end of every run."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

EXERCISED: Final[defaultdict[str, Counter[str]]] = defaultdict(Counter)
"""By test, how often each fault and event occurred."""
