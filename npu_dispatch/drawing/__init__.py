"""Reports as HTML and SVG: one writer of elements, one style of pages."""

from npu_dispatch.drawing.elements import element, svg_text
from npu_dispatch.drawing.report import bar, legend, report, table

__all__ = ["bar", "element", "legend", "report", "svg_text", "table"]
