"""What processes do with the device: read, judged, traced and served.

`segment` reads what processes publish; `judge` compares readings and says what holds
a process up; `trace` makes timelines; `serve` has the metrics, the page and what is
exported. None of them imports torch, and each uses only those named before it.
"""
