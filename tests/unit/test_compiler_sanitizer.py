"""What `make test-address` and `make test-thread` run with tells of a mistake."""

import os
import signal
from pathlib import Path

import compiler_sanitizer

from npu_dispatch import _C
from tests.support import preload

LIBRARY = Path(_C.__file__)


def test_the_extension_has_the_sanitizer_that_was_asked_for_and_this_process_runs_it():
    asked = os.environ.get("NPU_SANITIZER", "").replace("undefined", "")

    assert compiler_sanitizer.compiled_into(LIBRARY) == asked
    assert asked == compiler_sanitizer.PRESENT


# A copy whose source has been freed, by a task of the stream.
FREED = """
import ctypes, torch
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
address = libc.malloc(ctypes.c_size_t(4096))
bytes = (ctypes.c_char * 4096).from_address(address)
host = torch.frombuffer(bytes, dtype=torch.uint8)
libc.free(ctypes.c_void_p(address))
device = host.npu()
torch.npu.synchronize()
"""

# Events that nobody can reach, and whose counts say that somebody does.
LOST = """
import ctypes, pathlib, sys, torch
sys.path.insert(0, sys.argv[1])
import compiler_sanitizer
def lose():
    for _ in range(10):
        event = torch.Event("npu")
        event.record()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(event))
torch.npu.synchronize()
for report in "before", "after":
    print(len(compiler_sanitizer.leaks(pathlib.Path(report), sys.argv[2])))
    lose()
"""

# Two threads count in one plain number. Both do so for longer than one takes to
# start, as the interpreter's lock would order what one does before the other begins.
COUNTS = """
extern "C" void count() {
  static volatile long counter;
  for (int i = 0; i < 20'000'000; ++i) counter = counter + 1;
}
"""
UNORDERED = """
import ctypes, sys, threading
count = ctypes.CDLL(sys.argv[1]).count
threads = [threading.Thread(target=count) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""

if compiler_sanitizer.PRESENT == "address":

    def test_a_task_that_reads_freed_memory_ends_the_process(python):
        done = python(FREED, check=False)

        assert done.returncode == -signal.SIGABRT
        assert "heap-use-after-free" in done.stderr
        assert LIBRARY.name in done.stderr

    def test_what_the_extension_has_lost_is_told(python):
        support = Path(compiler_sanitizer.__file__).parent

        told = python(LOST, str(support), LIBRARY.name).stdout

        before, after = map(int, told.split())
        assert before == 0 and after > 0


if compiler_sanitizer.PRESENT == "thread":

    def test_two_threads_that_write_unordered_end_the_process(python, tmp_path):
        source = tmp_path / "counts.cpp"
        source.write_text(COUNTS)
        library = preload.build(source, tmp_path, "-fsanitize=thread")

        done = python(UNORDERED, str(library), check=False)

        assert done.returncode == -signal.SIGABRT
        assert "data race" in done.stderr
