// The device is stopped, or the process exits, in the middle of the work.
#include <stdlib.h>
#include <unistd.h>

#include <thread>

#include "csrc/engine/engine.h"
#include "csrc/engine/switches.h"
#include "tests/cpp/states/conditions.h"
#include "tests/drivers/by_hand.h"

namespace npu::states {
namespace {

// Returns once the work has begun: where the driver is late, its device holds
// the first kernel; else the gate holds the work.
void begin(Cell& cell, check::Gate& gate) {
  if (!is_late()) cell.gate = &gate;
  cell.start(2);
  if (is_late())
    EXPECT_TRUE(by_hand::wait_until_started(1) >= 1);
  else
    gate.wait_until_entered();
}

Cell* exiting = nullptr;
check::Gate* held = nullptr;
constexpr int kWrongResult = 3;

// Called when the exit has begun, and the engine has not been shut down.
void let_go() {
  if (is_late())
    std::thread([] {
      for (;;)
        if (by_hand::in_flight())
          by_hand::end_here(1);
        else
          std::this_thread::yield();
    }).detach();
  else
    held->open();
}

// Called when the engine has been shut down. A thread whose launches wait goes
// on meanwhile: it may not have noted what is wanted, and may launch once more.
void look_at_result() {
  if (exiting->way.waits ? exiting->runs == 0 : exiting->got != exiting->want)
    _exit(kWrongResult);
}

// What is queued is finished. The caller of an inline stream's task is a thread
// like any other, whose work a process does not wait for.
void exit_with_work(Cell& cell) {
  static check::Gate gate;
  exiting = &cell;
  held = &gate;
  cell.behind_a_kernel = true;
  begin(cell, gate);
  cell.leave(/*returns=*/!cell.way.waits);
  atexit(let_go);
  exit(0);
}

}  // namespace

void device_stopped_in_the_middle(Cell& cell) {
  cell.behind_a_kernel = is_late();
  check::Gate gate;
  begin(cell, gate);
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
    const Gil held(cell.way.gil);
    restart_device(0);
  }
  cell.launch_again();
}

void exit_in_the_middle(const Way& way) {
  expect_clean(check::in_child([&] {
                 alarm(kCellSeconds);
                 if (way.queued) atexit(look_at_result);
                 static Cell* const cell = new Cell(way, 0);
                 exit_with_work(*cell);
                 return 1;
               }),
               way.name);
}

void exit_after_a_stop(const Way& way) {
  const auto ended = in_process(way, [](Cell& cell) {
    check::Gate gate;
    cell.behind_a_kernel = true;
    begin(cell, gate);
    stop_device(0);
    cell.leave(/*returns=*/true);
    exit(0);
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(ended.err.starts_with("npu_dispatch: unreported at exit: "));
  EXPECT_TRUE(ended.err.find("FORCE STOP") != std::string::npos);
}

}  // namespace npu::states
