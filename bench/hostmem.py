# SPDX-License-Identifier: Apache-2.0
"""Memory that goes back to the host.

A virtual machine may give its host back whatever memory is free (free page reporting, by a virtio balloon). It
gets it again when it is touched, page by page, at the cost of whoever touches it. So what works on memory that
was free before, as a kernel's cache of files does, takes up to four times the CPU, and differs from run to run
(docs/facts.md, section 2).
"""
import glob

REPORTING_BIT = 5  # of a balloon's features: VIRTIO_BALLOON_F_REPORTING
LONG_MS = 60000
KEPT = "is kept"
GOES_BACK = "goes back to the host"
WARNING = ("Free memory of this machine goes back to its host, and is got again page by page when it is touched: what goes through the "
           "kernel's cache of files may take several times as long, and differ from run to run (bench/README.md).")


def first_line(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.readline().strip()
    except OSError:
        return ""


def state(sys="/sys"):
    """KEPT, or GOES_BACK: sooner than within a minute."""
    balloons = glob.glob(f"{sys}/bus/virtio/drivers/virtio_balloon/virtio*/features")
    reports = any(first_line(path)[REPORTING_BIT:REPORTING_BIT + 1] == "1" for path in balloons)
    # Not every kernel has it: so long it is kept.
    kept_ms = first_line(f"{sys}/module/page_reporting/parameters/min_free_ms")
    return GOES_BACK if reports and not (kept_ms.isdigit() and int(kept_ms) >= LONG_MS) else KEPT
