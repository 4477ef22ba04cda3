// A cell of the matrix: work that is launched in one way, under one condition.
// Each runs in a process of its own, so a cell that hangs or crashes is named.
#pragma once

#include "csrc/driver/driver.h"
#include "csrc/graph/graph.h"
#include "csrc/interop/foreign.h"
#include "tests/cpp/kernels.h"

namespace npu::states {

struct Cell;

struct Way {
  const char* name;
  // Finds the streams, and captures what is to be replayed.
  void (*prepare)(Cell&);
  // Launches the work on the calling thread, as number `n`. False: refused.
  bool (*launch)(Cell&, uint64_t n);
  bool waits = false;  // a launch returns when the work is done
  bool queued = true;  // a launcher runs the work
  bool gil = false;    // launched and waited for by whoever holds the GIL
};
extern const Way ways[7];

// What became of a launch.
struct Launched {
  // kLeft: it has not returned yet.
  enum class As { kLeft, kTaken, kRefused, kThrew };
  std::atomic<As> as{As::kLeft};
  char text[256] = "";  // what it threw; noted without asking for memory
};
using As = Launched::As;

// What the launches of a cell share. Everything is made before the engine may
// run out of anything.
struct Cell {
  // `n_words`: how many words of arguments the work has, at least.
  Cell(const Way& way, uint32_t n_words);
  ~Cell();
  Cell(const Cell&) = delete;

  // Launches on this thread; what is thrown is noted.
  void launch();
  // Launches on another thread, `times` times; `launched` tells of the first.
  void start(int times = 1);
  // Waits for the launch and for all that is queued.
  void settle();

  // Goes on without waiting for the queues. `returns`: the launch does.
  void leave(bool returns);

  // Everything was run, and nothing has failed.
  void expect_result();
  // Nothing was run.
  void expect_nothing_ran() { EXPECT_TRUE(got.empty()); }
  // The stream has failed so, and whatever waits for it has, too.
  void expect_error(int code, const std::string& text);
  // A stream that has failed takes nothing before clear_error(); then it does,
  // and the next launch gives the right result.
  void recover();
  void launch_again();

  const Way& way;
  std::vector<Stream*> streams;  // the first is the one that is launched on
  Stream& stream() const { return *streams.front(); }
  Graph graph;

  // What the next launches do.
  int code = NPU_OK;            // the outcome of the work
  bool text_has_an_end = true;  // what it says of a failure
  check::Gate* gate = nullptr;  // that it passes
  const uint32_t n_words;
  bool behind_a_kernel = false;  // foreign work: of the device's
  Launched launched;
  Numbers want;              // what launches that were taken append
  Numbers got;               // what was run
  std::atomic<int> runs{0};  // how much of it, for any thread
  std::array<uint64_t, 8> buffer{};
  // Of foreign work: how often it was handed over, and released.
  std::atomic<int> handed_over{0}, released{0};

 private:
  std::thread caller_;
  uint64_t launches_ = 0;
};

// What the work of every way does: passes the gate, fails or appends `value`.
int run_work(Cell& cell, uint64_t value, char* text);

// Whether tasks of the driver end after their start has returned.
bool is_late();

// A device that does its work: ends what is in flight while it exists. Does
// nothing where the driver's tasks end by themselves.
class Device {
 public:
  Device();
  ~Device();
  Device(const Device&) = delete;

 private:
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// A cell that takes longer hangs.
inline constexpr unsigned kCellSeconds = 60;

// Runs the body on a cell in a process of its own.
using Body = std::function<void(Cell&)>;
check::Ended in_process(const Way& way, const Body& body, uint32_t n_words = 0);
// Notes what the process has complained of.
void expect_clean(const check::Ended& ended, const std::string& where);

}  // namespace npu::states
