"""metrics.csv: one row per epoch, never two for the same.

Takes rows as mappings, writes them as they come. A continued run first drops the rows after its checkpoint.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from flashcart.deploy import write_atomic

METRICS_FILE = "metrics.csv"


class MetricsFile:
    """A CSV file with the given columns, of which `epoch` is one; missing values are empty."""

    def __init__(self, folder: Path, columns: Sequence[str], keep_epochs: int) -> None:
        """Keep the rows of the first `keep_epochs` epochs that stand in the file, drop the others."""
        self.path = folder / METRICS_FILE
        kept = [row for row in self._rows() if int(row["epoch"]) <= keep_epochs]
        earlier = [column for row in kept[:1] for column in row]
        self.columns = list(dict.fromkeys([*columns, *earlier]))
        write_atomic(self.path, self._text(kept).encode())

    def append(self, row: Mapping[str, object]) -> None:
        """Add one row."""
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self.columns, restval="").writerow(row)

    def _rows(self) -> list[dict[str, str]]:
        """Return the complete rows of the file; a last line that was cut short is not one."""
        if not self.path.exists():
            return []
        with self.path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return [row for row in rows if None not in row.values() and row.get("epoch", "").isdigit()]

    def _text(self, rows: Sequence[Mapping[str, object]]) -> str:
        """Return the file as it is to be, with a header and these rows."""
        stream = io.StringIO(newline="")
        writer = csv.DictWriter(stream, self.columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue()
