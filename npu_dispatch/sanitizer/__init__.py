"""What the race sanitizer reports, how reports are written, and which to leave out.

Nothing here needs torch; `torch.npu._sanitizer` switches the sanitizer on.
"""

from npu_dispatch.sanitizer.formats import to_json, to_sarif
from npu_dispatch.sanitizer.reports import KINDS, Access, Frame, Report
from npu_dispatch.sanitizer.suppressions import Suppressions

__all__ = [
    "KINDS",
    "Access",
    "Frame",
    "Report",
    "Suppressions",
    "to_json",
    "to_sarif",
]
