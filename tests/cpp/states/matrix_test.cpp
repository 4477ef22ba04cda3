// Every way to run work under every condition: the right result or an error
// with a code and a text, and the next launch gives the right result.
#include <limits.h>

#include "csrc/memory/caching_allocator.h"
#include "csrc/stats/layout.h"
#include "tests/cpp/no_memory.h"
#include "tests/cpp/states/cell.h"
#include "tests/cpp/system.h"
#include "tests/drivers/by_hand.h"

namespace npu::states {
namespace {

// The driver is late, busy, refuses, or never answers.

constexpr size_t kRoom = 1000;
// What is no npu_code. NPU_BUSY is a code of submit() alone.
constexpr int kUnknown[] = {-32, INT_MIN, NPU_LINALG_ERROR + 1, kErrorCodes,
                            INT_MAX};

std::string says(int unknown) {
  return "(it returned " + std::to_string(unknown) + ", which is no npu_code)";
}

void expect_not_done(Cell& cell) {
  // An inline stream counts a task when it is done.
  if (cell.way.queued) EXPECT_TRUE(!cell.stream().idle());
  if (cell.way.waits) EXPECT_EQ(cell.launched.as.load(), As::kLeft);
  cell.expect_nothing_ran();
}

void succeed(Cell& cell) {
  const Device device;
  cell.settle();
  cell.expect_result();
}

// What was launched fails so, without having run.
void fail(Cell& cell, int code, const std::string& text) {
  cell.settle();
  cell.expect_error(code, text);
  cell.expect_nothing_ran();
}

void fail_and_recover(Cell& cell, int code, const std::string& text) {
  fail(cell, code, text);
  cell.recover();
}

// Launches what the driver is to refuse, and lets nothing run.
void refuse(Cell& cell, int outcome, int code, const std::string& text) {
  cell.behind_a_kernel = true;
  by_hand::set_refusal(outcome);
  cell.start();
  cell.settle();
  by_hand::set_refusal(NPU_OK);
  fail_and_recover(cell, code, text);
}

void start_on_device(Cell& cell) {
  cell.behind_a_kernel = true;
  cell.start();
  EXPECT_EQ(by_hand::wait_until_started(1), 1);
}

void start_on_busy_device(Cell& cell) {
  cell.behind_a_kernel = true;
  by_hand::set_room(0);
  cell.start();
  EXPECT_TRUE(by_hand::wait_until_busy(3) >= 3);
}

void driver_returns_late(Cell& cell) {
  start_on_device(cell);
  expect_not_done(cell);
  succeed(cell);
}

void driver_is_busy_for_a_while(Cell& cell) {
  start_on_busy_device(cell);
  expect_not_done(cell);
  by_hand::set_room(1);
  succeed(cell);
}

void driver_is_busy_until_a_stop(Cell& cell) {
  start_on_busy_device(cell);
  cell.stream().force_stop();
  cell.settle();
  by_hand::set_room(kRoom);
  fail_and_recover(cell, NPU_ERROR, "FORCE STOP");
}

void driver_refuses_with_a_known_code(Cell& cell) {
  for (int code = NPU_ERROR; code <= NPU_LINALG_ERROR; ++code)
    refuse(cell, code, code, "refused");
}

void driver_refuses_with_an_unknown_code(Cell& cell) {
  for (const int code : kUnknown) refuse(cell, code, NPU_ERROR, says(code));
}

// A failure that says NPU_OK, or NPU_BUSY, is one.
void driver_reports_a_failure_without_a_code(Cell& cell) {
  for (const int code : {int(NPU_OK), int(NPU_BUSY)}) {
    start_on_device(cell);
    by_hand::fail("lightning", code);
    fail_and_recover(cell, NPU_ERROR, "lightning");
  }
}

void driver_never_reports_the_end(Cell& cell) {
  start_on_device(cell);
  cell.stream().force_stop();
  cell.settle();
  EXPECT_EQ(by_hand::in_flight(), 0);
  fail_and_recover(cell, NPU_ERROR, "FORCE STOP");
}

void work_fails_with_a_known_code(Cell& cell) {
  for (int code = NPU_ERROR; code <= NPU_LINALG_ERROR; ++code) {
    cell.code = code;
    const Device device;
    cell.start();
    fail_and_recover(cell, code, "asked to fail");
  }
}

void work_fails_with_an_unknown_code(Cell& cell) {
  const Device device;
  const auto fails = [&](int code) {
    cell.code = code;
    cell.start();
    fail(cell, NPU_ERROR, "asked to fail");
    fail_and_recover(cell, NPU_ERROR, says(code));
  };
  for (const int code : kUnknown) fails(code);
  fails(NPU_BUSY);
}

void work_fails_with_a_text_without_an_end(Cell& cell) {
  const Device device;
  cell.code = NPU_VALUE_ERROR;
  cell.text_has_an_end = false;
  cell.start();
  cell.settle();
  cell.expect_error(NPU_VALUE_ERROR, std::string(NPU_MAX_ERROR_TEXT / 2, 'x'));
  cell.recover();
}

// The host has no thread or no memory for the work.

void expect_refused(const Cell& cell, const std::string& text) {
  EXPECT_EQ(cell.launched.as.load(), As::kThrew);
  EXPECT_CONTAINS(cell.launched.text, text);
}

// A launch that was refused has changed nothing.
void expect_untouched(Cell& cell) {
  for (Stream* s : cell.streams) EXPECT_TRUE(!s->failed());
  EXPECT_EQ(cell.handed_over.load(), cell.released.load());
  cell.expect_nothing_ran();
}

// Waits without asking for memory.
void wait_for_queues(const Cell& cell) {
  for (Stream* s : cell.streams)
    while (!s->idle()) std::this_thread::yield();
}

// The launch is refused, gives its result, or fails as it says; and the next
// one gives the right result.
constexpr int kHadMemory = 77;  // an exit code
void launch_without_memory(Cell& cell, long spared, bool once, int code) {
  cell.code = code;
  bool failed;
  {
    const Device device;
    {
      const check::NoNew none(spared, once);
      cell.launch();
      wait_for_queues(cell);
      failed = check::NoNew::has_failed();
    }
    cell.settle();
  }
  if (cell.launched.as == As::kThrew) {
    expect_untouched(cell);
    cell.launch_again();
  } else if (cell.stream().failed()) {
    EXPECT_TRUE(code != NPU_OK || !cell.stream().error()->text.empty());
    if (code != NPU_OK && !failed) EXPECT_EQ(cell.stream().error()->code, code);
    cell.expect_nothing_ran();
    cell.recover();
  } else {
    EXPECT_EQ(code, NPU_OK);
    cell.expect_result();
    cell.launch_again();
  }
  if (!failed) exit(kHadMemory);
}

// Takes the memory away before each call of operator new, one after another.
template <int code>
void no_memory(const Way& way) {
  for (const bool once : {true, false})
    for (long spared = 0;; ++spared) {
      const auto ended = in_process(way, [&](Cell& cell) {
        launch_without_memory(cell, spared, once, code);
      });
      if (ended.code == kHadMemory && ended.err.empty()) break;
      expect_clean(ended, std::string(way.name) + ", allocation " +
                              std::to_string(spared) +
                              (once ? "" : " and later ones"));
      if (ended.code != 0) break;
    }
}

void no_thread(Cell& cell) {
  const Device device;
  {
    const check::NoThreads none;
    cell.launch();
  }
  if (cell.way.queued) {
    expect_refused(cell, "no thread can be had");
    expect_untouched(cell);
    EXPECT_EQ(cell.stream().tail(), 0);
  } else {
    cell.settle();
    cell.expect_result();
  }
  cell.launch_again();
}

void no_memory_for_arguments(Cell& cell) {
  {
    const check::NoMemory none;
    cell.launch();
  }
  expect_refused(cell, "no host memory for the");
  expect_untouched(cell);
  cell.launch_again();
}

constexpr size_t kTotal = size_t{256} << 20;

CachingAllocator& memory() {
  static auto* const instance = [] {
    setenv("NPU_DISPATCH_MEMORY", std::to_string(kTotal).c_str(), 1);
    return new CachingAllocator(0);
  }();
  return *instance;
}

void no_device_memory(Cell& cell) {
  OutOfMemory why;
  EXPECT_TRUE(!memory().allocate(2 * kTotal, cell.stream(), why));
  EXPECT_CONTAINS(why.message(), "out of memory");
  expect_untouched(cell);
  Block* const block = memory().allocate(kTotal, cell.stream(), why);
  EXPECT_TRUE(block != nullptr);
  EXPECT_TRUE(!memory().allocate(kTotal, cell.stream(), why));
  cell.launch_again();
  memory().free(block);
}

// Returns once the work has begun: where the driver is late, its device holds
// the first kernel; else the gate holds the work.
void begin(Cell& cell, check::Gate& gate, int times) {
  if (!is_late()) cell.gate = &gate;
  cell.start(times);
  if (is_late())
    EXPECT_TRUE(by_hand::wait_until_started(1) >= 1);
  else
    gate.wait_until_entered();
}

// All memory is in use by the work, and was freed by its owner: whoever asks
// for it waits for the work.
void device_memory_in_use(Cell& cell) {
  cell.behind_a_kernel = true;
  Stream& owner = current_stream(0);
  OutOfMemory why;
  Block* block = memory().allocate(kTotal, owner, why);
  check::Gate gate;
  begin(cell, gate, 1);
  memory().record_stream(block, cell.stream());
  memory().free(block);
  std::thread asking([&] {
    block = memory().allocate(kTotal, owner, why);
    EXPECT_TRUE(cell.stream().idle());
  });
  const Device device;
  gate.open();
  asking.join();
  EXPECT_TRUE(block != nullptr);
  cell.settle();
  cell.expect_result();
  cell.launch_again();
}

// The device is stopped, or the process exits, in the middle of the work.

Cell* exiting = nullptr;
check::Gate* held = nullptr;
constexpr int kWrongResult = 3;

// Called when the exit has begun, and the engine has not been shut down.
void let_go() {
  if (!is_late()) return held->open();
  [[maybe_unused]] static const Device* const device = new Device;
}

// Called when the engine has been shut down. A thread whose launches wait goes
// on meanwhile: it may not have noted what is wanted, and may launch once more.
void look_at_result() {
  if (exiting->way.waits ? exiting->runs == 0 : exiting->got != exiting->want)
    _exit(kWrongResult);
}

// What is queued is finished. The caller of an inline stream's task is a thread
// like any other, whose work a process does not wait for.
void exit_in_the_middle(const Way& way) {
  expect_clean(check::in_child([&] {
                 alarm(kCellSeconds);
                 if (way.queued) atexit(look_at_result);
                 static check::Gate gate;
                 held = &gate;
                 exiting = new Cell(way, 0);
                 exiting->behind_a_kernel = true;
                 begin(*exiting, gate, 2);
                 exiting->leave(/*returns=*/!way.waits);
                 atexit(let_go);
                 return 0;
               }),
               way.name);
}

void device_stopped_in_the_middle(Cell& cell) {
  cell.behind_a_kernel = is_late();
  check::Gate gate;
  begin(cell, gate, 2);
  stop_device(0);
  gate.open();
  cell.settle();
  cell.expect_error(NPU_ERROR, "FORCE STOP");
  // Work that has begun on the host runs to its end, and a replay has begun on
  // all of its streams; a device drops what it runs.
  const size_t begun = cell.streams.size() > 1 ? 3 : 1;
  EXPECT_TRUE(cell.got.size() <= (is_late() ? 0 : begun));
  cell.launch();
  EXPECT_EQ(cell.launched.as.load(), As::kRefused);
  {
    const check::Gil held(cell.way.gil);
    restart_device(0);
  }
  cell.launch_again();
}

void exit_after_a_stop(const Way& way) {
  const auto ended = in_process(way, [](Cell& cell) {
    check::Gate gate;
    cell.behind_a_kernel = true;
    begin(cell, gate, 2);
    stop_device(0);
    cell.leave(/*returns=*/true);
    exit(0);
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(ended.err.starts_with("npu_dispatch: unreported at exit: "));
  EXPECT_CONTAINS(ended.err, "FORCE STOP");
}

template <void (*body)(Cell&), uint32_t n_words = 0>
void alone(const Way& way) {
  expect_clean(in_process(way, body, n_words), way.name);
}

struct Condition {
  // kLate: where launch() returns before the task is done. kQueue: for whoever
  // frees memory after the launch and before the end of the work.
  enum class On { kAny, kLate, kQueue };
  const char* name;
  void (*run)(const Way&);
  On on = On::kAny;

  bool exists(const Way& way) const {
    const char* const driver = getenv("NPU_DRIVER");
    if (on == On::kLate) return driver && strstr(driver, "by_hand");
    return on == On::kAny || way.queued;
  }
};
using enum Condition::On;

constexpr Condition conditions[] = {
    {"DriverReturnsLate", alone<driver_returns_late>, kLate},
    {"DriverIsBusyForAWhile", alone<driver_is_busy_for_a_while>, kLate},
    {"DriverIsBusyUntilAStop", alone<driver_is_busy_until_a_stop>, kLate},
    {"DriverRefusesWithAKnownCode", alone<driver_refuses_with_a_known_code>,
     kLate},
    {"DriverRefusesWithAnUnknownCode",
     alone<driver_refuses_with_an_unknown_code>, kLate},
    {"DriverReportsAFailureWithoutACode",
     alone<driver_reports_a_failure_without_a_code>, kLate},
    {"DriverNeverReportsTheEnd", alone<driver_never_reports_the_end>, kLate},
    {"WorkFailsWithAKnownCode", alone<work_fails_with_a_known_code>},
    {"WorkFailsWithAnUnknownCode", alone<work_fails_with_an_unknown_code>},
    {"WorkFailsWithATextWithoutAnEnd",
     alone<work_fails_with_a_text_without_an_end>},
    {"NoThread", alone<no_thread>},
    {"NoMemoryForArguments", alone<no_memory_for_arguments, 40>},
    {"NoMemoryAtAnyPoint", no_memory<NPU_OK>},
    {"NoMemoryWhileItFails", no_memory<NPU_VALUE_ERROR>},
    {"NoDeviceMemory", alone<no_device_memory>},
    {"DeviceMemoryInUse", alone<device_memory_in_use>, kQueue},
    {"DeviceStoppedInTheMiddle", alone<device_stopped_in_the_middle>},
    {"ExitInTheMiddle", exit_in_the_middle},
    {"ExitAfterAStop", exit_after_a_stop, kLate},
};

[[maybe_unused]] const int added = [] {
  for (const Way& way : ways)
    for (const Condition& condition : conditions)
      if (condition.exists(way))
        check::add(*new check::Test{way.name, condition.name,
                                    [&] { condition.run(way); }});
  return 0;
}();

}  // namespace
}  // namespace npu::states
